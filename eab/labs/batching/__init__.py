"""Serves the same requests one by one, in static batches and by continuous batching."""
