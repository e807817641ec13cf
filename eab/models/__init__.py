"""Language models.

`base` defines what the engine needs, `huggingface` drives models of transformers. `loading` loads a
model by its name: `sources` says where it is, `pretrained` and `gguf` read its files.
"""
