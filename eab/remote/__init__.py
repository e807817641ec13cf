"""Language models on a server that somebody else runs: vLLM or llama.cpp."""
