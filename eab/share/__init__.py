"""A run outside the app: HTML page, notebook widget, GraphML, Python program; and the site."""
