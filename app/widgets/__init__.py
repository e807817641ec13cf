"""What pages put on the screen: the board, charts, settings, results."""
