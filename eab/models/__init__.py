"""Language models.

`base` defines what the engine needs, `huggingface` drives models of transformers, `loading` finds
a model by its name.
"""
