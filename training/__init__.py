"""Code that trains the small language model shipped in ``assets/model``."""
