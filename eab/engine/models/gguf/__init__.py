"""Models in GGUF files, the format of llama.cpp, Ollama and LM Studio.

`header` reads the metadata of a file. From it, `tokenizer` makes a tokenizer, and `checkpoint` a
transformers configuration and the model. Files are untrusted: every count in them is checked
against the file before anything is allocated.
"""
