"""What finished runs tell, as pure functions of their events: answers, sweeps of one setting, the
diff of two runs.
"""
