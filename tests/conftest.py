"""One thread per process, and shared fixtures: tiny random models of real families, and models that
may not be on this machine.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from tiny_models import shared, tiny, word_tokenizer
from transformers import PreTrainedTokenizerFast

from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model, wrap_model
from eab.engine.models.packaged import SMOLLM2
from eab.engine.models.packaged import VARIABLE as MODELS_VARIABLE
from eab.engine.models.sources import EMBEDDED_FOLDER

# One thread per process: the tests share the machine with a browser, servers and each other.
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

SMOLLM2_FILE = SMOLLM2.file  # before a fixture changes the models folder
STORIES_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "models" / "stories260K-hf"


class Twins:
    """A tiny random float64 model twice: `ours`, wrapped by this project, and `plain`,
    untouched.
    """

    def __init__(self, family: str, seed: int) -> None:
        self.plain = shared(family, seed)
        self.ours: HuggingFaceModel = wrap_model(shared(family, seed), word_tokenizer(), family)


@pytest.fixture(scope="session", autouse=True)
def _store_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests, and the servers they start, away from the user's own files."""
    os.environ["EAB_STORE"] = str(tmp_path_factory.mktemp("store") / "runs.sqlite")
    # With the chat model in place, pages would send typed prompts to it; see `smollm2_here`.
    os.environ[MODELS_VARIABLE] = str(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def twins() -> Callable[..., Twins]:
    """twins(family, seed=0) -> Twins, built once per session."""
    return lru_cache(maxsize=None)(lambda family, seed=0: Twins(family, seed))


@pytest.fixture
def words() -> PreTrainedTokenizerFast:
    """The tokenizer of the tiny models."""
    return word_tokenizer()


@pytest.fixture
def llama_folder(tmp_path: Path, words: PreTrainedTokenizerFast) -> Path:
    """A folder with a saved tiny Llama of two layers."""
    tiny("LlamaConfig").save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def embedded() -> HuggingFaceModel:
    """The embedded model in float32 on the CPU."""
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    return load_model("embedded", device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The file of the chat model; skips the test if `make` could not download it."""
    if not SMOLLM2_FILE.is_file():
        pytest.skip("SmolLM2 is not here: the package index did not have it")
    return SMOLLM2_FILE


@pytest.fixture
def smollm2_here(smollm2_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the name `smollm2` find the chat model."""
    monkeypatch.setenv(MODELS_VARIABLE, str(smollm2_file.parent.parent))


@pytest.fixture(scope="session")
def smollm2(smollm2_file: Path) -> HuggingFaceModel:
    """The chat model in float32 on the CPU."""
    return load_model(str(smollm2_file), device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def stories_folder() -> Path:
    """A small Llama with a SentencePiece-like vocabulary, kept outside the repository."""
    if not STORIES_FOLDER.is_dir():
        pytest.skip("shared/models/stories260K-hf is not beside the repository")
    return STORIES_FOLDER
