"""Write a model folder for ``from_pretrained``, so that readers never see a half-written file."""

import os
import tempfile
from pathlib import Path

from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from training.network import CONTEXT, build_model
from training.tokenizer import END_ID, for_transformers


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write float16 weights, configuration and tokenizer. Other files in the folder stay."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as name:
        temporary = Path(name)
        _half_precision_copy(model).save_pretrained(temporary)
        for_transformers(tokenizer, CONTEXT).save_pretrained(temporary)
        for path in sorted(temporary.iterdir()):
            path.chmod(0o644)
            os.replace(path, folder / path.name)


def _half_precision_copy(model: LlamaForCausalLM) -> LlamaForCausalLM:
    copy = build_model(model.config.hidden_size, model.config.num_hidden_layers, seed=0)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        bos_token_id=END_ID, eos_token_id=END_ID, pad_token_id=END_ID, do_sample=True
    )
    copy.half()
    return copy
