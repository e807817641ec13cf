"""Measurements of bucketed memory growth (BMC, arXiv 2511.12031)."""
