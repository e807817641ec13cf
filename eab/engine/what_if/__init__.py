"""A finished run at other settings, computed from its events without the model."""
