"""The parts of the pages: the board, charts, settings, results."""
