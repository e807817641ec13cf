"""Weights in fewer bits: how one matrix is rounded, what that does to a whole model, and what
bounds a decode step.
"""
