"""What finished runs say, as pure folds over their events: answers, sweeps of one setting, the diff
of two runs.
"""
