"""Linear layers whose weights are stored in fewer bits.

Every layer is batch-invariant: the result of a row does not depend on the other rows. Paths share
their forward passes, so otherwise a text would depend on its siblings. `formats` chooses the layers
of a model; `layer` and `integers` have them.
"""
