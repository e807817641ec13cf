"""Everything needed to train the small language model that ships in ``assets/model``."""
