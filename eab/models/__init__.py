"""Language models: `base` says what the engine needs, `huggingface` drives transformers, `loading`
finds a model.
"""
