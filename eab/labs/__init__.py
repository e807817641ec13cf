"""The laboratories: each measures one technique on this machine, and draws the results.

In each folder `measure` runs the model, `results` has the results and their file format, and
modules with `pictures` in their names draw them.
"""
