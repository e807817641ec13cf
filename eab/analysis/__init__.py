"""Results computed from finished runs, as pure functions of their events."""
