"""The explorer as static files, without a server."""
