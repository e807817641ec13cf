"""The laboratories: each measures one technique (`measure`), and draws its `results`."""
