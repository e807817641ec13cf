"""The branching algorithm: where a path forks, which children it gets, and what they weigh.

It knows nothing of models and caches.
"""
