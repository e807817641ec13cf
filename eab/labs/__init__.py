"""The laboratories: each measures one technique (`measure`) and presents its `results`."""
