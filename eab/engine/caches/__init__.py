"""KV caches behind one interface.

`base` defines the interface, `factory` makes a cache by its name. `growth` decides how many
rows a cache should allocate at a time.
"""
