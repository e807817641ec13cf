"""The laboratories: each measures one technique on this machine, and draws what it found.

In each folder `measure` runs the model, `results` holds what it found and its file, and the modules
with `pictures` in their names draw it. Laboratories do not import each other.
"""
