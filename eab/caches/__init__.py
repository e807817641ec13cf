"""KV caches behind one interface; `base` holds the interface, `tree` the copy-on-write tree cache."""
