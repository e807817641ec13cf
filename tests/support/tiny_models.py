"""Tiny random models of real families, and a tokenizer in which token i is the word `w<i>`."""

from collections.abc import Callable

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PhiConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

VOCAB = 72
USUAL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GATED = USUAL | {"intermediate_size": 48}
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**GATED | {"num_hidden_layers": 3}, num_key_value_heads=4),
    "qwen2": lambda: Qwen2Config(**GATED, num_key_value_heads=2),
    "gpt2": lambda: GPT2Config(
        **{
            key: USUAL[key]
            for key in ("vocab_size", "initializer_range", "bos_token_id", "eos_token_id")
        },
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
    ),
    "gpt_neox": lambda: GPTNeoXConfig(**GATED),
    "opt": lambda: OPTConfig(**USUAL, ffn_dim=48, word_embed_proj_dim=32),
    "mistral": lambda: MistralConfig(**GATED, num_key_value_heads=1),
    "qwen3": lambda: Qwen3Config(**GATED, num_key_value_heads=2, head_dim=16),
    "phi": lambda: PhiConfig(**GATED),
}


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
    return random_model(CONFIGS["llama"]()), tokenizer


def random_model(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A model with random weights that are large enough for its entropies to vary."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).double().eval()


def causal(kind: str, **more: object) -> PreTrainedModel:
    """A tiny model with small random weights, in float32.

    Args:
        kind: The name of its config class in transformers.
        more: Settings in addition to, or instead of, the usual ones.
    """
    torch.manual_seed(0)
    small = GATED | {"initializer_range": 0.02, "num_key_value_heads": 2}
    return AutoModelForCausalLM.from_config(getattr(transformers, kind)(**small | more))
