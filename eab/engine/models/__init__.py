"""Language models.

`base` defines what the engine needs, and `huggingface` drives transformers models. `loading` loads
a model by name: `sources` finds its files, `pretrained` and `gguf` read them.
"""
