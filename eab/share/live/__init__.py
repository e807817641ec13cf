"""The story model for a page that runs it itself: `static/` is the engine in JavaScript."""
