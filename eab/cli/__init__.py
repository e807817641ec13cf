"""The command line: the same runs without a browser."""
