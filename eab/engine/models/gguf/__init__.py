"""Models in GGUF files, the format of llama.cpp, Ollama and LM Studio.

`header` reads the metadata of a file. From it, `architecture` makes a transformers configuration,
`tokenizer` a tokenizer, and `checkpoint` the model. Files are untrusted: every count in them is
checked against the file before anything is allocated.
"""
