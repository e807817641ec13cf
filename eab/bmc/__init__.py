"""Measurements around bucketed memory growth (BMC, arXiv 2511.12031).

`experiments` runs them, `results` collects what they measured, `demand` counts a recorded run at
any growth step, and `machine` names the machine. The cost model is in eab.caches.growth.
"""
