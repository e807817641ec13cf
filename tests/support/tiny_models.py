"""Tiny random models of real families, and a tokenizer in which token i is the word `w<i>`."""

from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

VOCAB = 72
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
# Of the models that many tests share: the config class, and settings in addition to SIZES
SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"num_hidden_layers": 3, "num_key_value_heads": 4}),
    "qwen2": ("Qwen2Config", {}),
    "gpt2": ("GPT2Config", {}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "opt": ("OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "mistral": ("MistralConfig", {"num_key_value_heads": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "phi": ("PhiConfig", {"num_key_value_heads": 4}),
}


def tiny(
    kind: str, dtype: torch.dtype = torch.float32, seed: int = 0, spread: float = 0.02, **more: Any
) -> PreTrainedModel:
    """A tiny model with random weights.

    Args:
        kind: The name of its config class in transformers.
        dtype: The data type of its weights, which are drawn in float32.
        seed: The seed of the weights.
        spread: Their standard deviation. With 0.3, the entropies of texts vary.
        more: Settings in addition to, or instead of, SIZES.
    """
    torch.manual_seed(seed)
    config = getattr(transformers, kind)(**SIZES | {"initializer_range": spread} | more)
    made = AutoModelForSeq2SeqLM if kind == "T5Config" else AutoModelForCausalLM
    return made.from_config(config).to(dtype).eval()


def shared(family: str, seed: int = 0) -> PreTrainedModel:
    """A model of a family in SHARED, in float64."""
    kind, more = SHARED[family]
    return tiny(kind, torch.float64, seed, spread=0.3, **more)


def with_large_weights(
    kind: str, dtype: torch.dtype = torch.float64, **more: Any
) -> PreTrainedModel:
    """A tiny model in whose logits a small difference in its cache or states shows. Families with
    states draw many of their weights by rules of their own, so these are drawn again.
    """
    model = tiny(kind, dtype, seed=1, **{"pad_token_id": 0} | more)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() >= 2 and "A_log" not in name:
                weight.normal_(0, 0.3)
    return model


def word_tokenizer(size: int = VOCAB) -> PreTrainedTokenizerFast:
    """A tokenizer in which token i is the word `w<i>`; only token 1 is `<end>` and ends a text."""
    words = ["w0", "<end>", *(f"w{index}" for index in range(2, size))]
    backend = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="w0")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


# A message is w60, its role, w61, its content, w62; then comes the start of the assistant's turn
CHAT_TEMPLATE = (
    "{% set roles = {'system': 'w63', 'user': 'w64', 'assistant': 'w65'} %}"
    "{% for message in messages %}{% if message.role not in roles %}"
    "{{ raise_exception('no role ' ~ message.role) }}{% endif %}"
    "w60 {{ roles[message.role] }} w61 {{ message.content }} w62 {% endfor %}"
    "{% if add_generation_prompt %}w60 w65 w61 {% endif %}"
)


def chat_pair() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A tiny random model and its tokenizer, which has CHAT_TEMPLATE."""
    tokenizer = word_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    return shared("llama"), tokenizer
