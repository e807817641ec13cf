"""Language models on a vLLM or llama.cpp server that somebody else runs."""
