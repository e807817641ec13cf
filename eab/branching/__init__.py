"""Where a path forks, which children it gets, and what they weigh: the algorithm, apart from models
and caches.
"""
