"""Language models on a server that somebody else runs: vLLM or llama.cpp.

`model` puts a server behind `eab.models.base.LanguageModel`, `llama_cpp` and `vllm` speak with the
two kinds of server, `connection` carries the requests, `operator` knows where the server is, and
`loading` finds a model by its name.
"""
