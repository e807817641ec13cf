"""The explorer as static files, without a server. `live/` runs the story model in a browser."""
