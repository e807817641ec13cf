"""BMC (arXiv 2511.12031): the cost model (`costs`), what was measured (`results`), and the
measuring (the rest).
"""
