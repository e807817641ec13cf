"""KV caches behind one interface: `base` holds it, `factory` makes a cache by its name, the rest
are the caches.
"""
