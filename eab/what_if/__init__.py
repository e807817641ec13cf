"""A finished run at other settings, recomputed from its events without the model."""
