"""What finished runs tell, as pure functions of their events."""
