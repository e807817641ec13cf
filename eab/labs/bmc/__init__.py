"""Measurements around bucketed memory growth (BMC, arXiv 2511.12031)."""
