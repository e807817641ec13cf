"""One prompt under several KV caches, or draft lengths: the same tokens at other costs."""
