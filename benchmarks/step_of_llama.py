"""Prints the median seconds of a small Llama's decode step through the tree cache, for
benchmarks/families.py, which also runs it with other versions of `eab`.
"""

import statistics
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from eab.caches.timing import prefilled_tree, time_step
from eab.models.huggingface import HuggingFaceModel
from eab.models.sources import EMBEDDED_FOLDER

PROMPT, PATHS, STEPS = 300, 20, 40
torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
plain = AutoModelForCausalLM.from_config(
    LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
)
model = HuggingFaceModel(plain, AutoTokenizer.from_pretrained(EMBEDDED_FOLDER), "llama")
rows = 2 * STEPS + 1
cache = prefilled_tree(model.kv_shape, PROMPT, rows, padded=False, paths=PATHS, steps=rows)
seconds = [
    time_step(lambda batch: model.forward([batch]), cache, range(1, PATHS + 1)).seconds
    for _ in range(2 * STEPS)
]
print(statistics.median(seconds[STEPS:]))
