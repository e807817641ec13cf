"""Weights in fewer bits: one rounded matrix, a whole model, and what bounds a decode step."""
