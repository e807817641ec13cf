"""A run outside the app: an HTML page, a notebook widget, GraphML, a Python program that repeats
it.
"""
