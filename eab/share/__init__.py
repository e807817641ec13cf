"""A run taken elsewhere: an HTML page, a notebook widget, GraphML, the lines of Python that repeat
it.
"""
