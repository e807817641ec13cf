"""The loop: one forward pass per step for all live paths (`loop`), and the state of one run
(`generation`).
"""
