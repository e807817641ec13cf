"""Weights in fewer bits: one rounded matrix, a whole model, and the limits of a decode step."""
