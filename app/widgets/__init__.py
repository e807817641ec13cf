"""The parts of the pages: the board with its results, settings, and the elements of a page."""
