"""Models in GGUF files, the format of llama.cpp, Ollama and LM Studio.

`header` reads what a file says of itself, `architecture` makes a configuration of transformers from
it, `tokenizer` a tokenizer, `checkpoint` the model. Files are untrusted: every count in them is
checked against the file before anything is made of it.
"""
