"""One prompt with several KV caches or draft lengths: the same tokens at different costs."""
