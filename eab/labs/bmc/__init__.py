"""Measurements around bucketed memory growth (BMC, arXiv 2511.12031).

`measure` runs the experiments, `results` collects what they measured. The cost model is in
eab.caches.growth; what a recorded run would need at any r is counted in eab.analysis.kv_demand.
"""
