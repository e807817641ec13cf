"""What several test files share: one thread, tiny random models of real families, and folders that
may be absent.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
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

from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import EMBEDDED_FOLDER, load_model, wrap_model

# One thread each: the tests share the machine with a browser, servers and each other.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the servers and commands that tests start

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

VOCAB = 72
STORIES_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "models" / "stories260K-hf"

_USUAL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_GATED = _USUAL | {"intermediate_size": 48}
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**_GATED | {"num_hidden_layers": 3}, num_key_value_heads=4),
    "qwen2": lambda: Qwen2Config(**_GATED, num_key_value_heads=2),
    "gpt2": lambda: GPT2Config(
        **{
            key: _USUAL[key]
            for key in ("vocab_size", "initializer_range", "bos_token_id", "eos_token_id")
        },
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
    ),
    "gpt_neox": lambda: GPTNeoXConfig(**_GATED),
    "opt": lambda: OPTConfig(**_USUAL, ffn_dim=48, word_embed_proj_dim=32),
    "mistral": lambda: MistralConfig(**_GATED, num_key_value_heads=1),
    "qwen3": lambda: Qwen3Config(**_GATED, num_key_value_heads=2, head_dim=16),
    "phi": lambda: PhiConfig(**_GATED),
}


def word_tokenizer(size: int = VOCAB) -> PreTrainedTokenizerFast:
    """Token i is the word `w<i>`, but token 1 is `<end>`, which ends a text."""
    words = ["w0", "<end>", *(f"w{index}" for index in range(2, size))]
    backend = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="w0")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def random_model(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A model with random weights that are large enough for its entropies to vary."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).double().eval()


class Twins:
    """A tiny random float64 model twice: `ours`, wrapped by this project, and `plain`,
    untouched.
    """

    def __init__(self, family: str, seed: int) -> None:
        self.plain = random_model(CONFIGS[family](), seed)
        self.ours: HuggingFaceModel = wrap_model(
            random_model(CONFIGS[family](), seed), word_tokenizer(), family
        )


@pytest.fixture(scope="session", autouse=True)
def _store_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody's own files are touched by tests, also not by servers that they start."""
    os.environ["EAB_STORE"] = str(tmp_path_factory.mktemp("store") / "runs.sqlite")
    os.environ["EAB_LAYOUTS"] = str(tmp_path_factory.mktemp("layouts") / "layouts.json")


@pytest.fixture(scope="session")
def twins() -> Callable[..., Twins]:
    """twins(family, seed=0) -> Twins, built once per session."""
    return lru_cache(maxsize=None)(lambda family, seed=0: Twins(family, seed))


@pytest.fixture(scope="session")
def make_model() -> Callable[..., PreTrainedModel]:
    """make_model(config, seed=0) -> an ordinary transformers model in float64."""
    return random_model


@pytest.fixture
def words() -> PreTrainedTokenizerFast:
    """The tokenizer of the tiny models."""
    return word_tokenizer()


@pytest.fixture(scope="session")
def embedded() -> HuggingFaceModel:
    """The embedded model in float32 on the CPU."""
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    return load_model("embedded", device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def stories_folder() -> Path:
    """A small Llama with a SentencePiece-like vocabulary, kept outside the repository."""
    if not STORIES_FOLDER.is_dir():
        pytest.skip("shared/models/stories260K-hf is not beside the repository")
    return STORIES_FOLDER
