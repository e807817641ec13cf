"""Memory of the machine, and of a container on it. How many operators a decode step of our decoder
dispatches: on a GPU, each is a kernel to launch.
"""

from pathlib import Path

import psutil
import pytest
import torch
from tiny_models import word_tokenizer
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from eab.engine.caches.tree import TreeCache
from eab.engine.models import machine
from eab.engine.models.loading import wrap_model

MIB = 2**20


def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str) -> None:
    """Make a control group report this limit."""
    file = tmp_path / "memory.max"
    file.write_text(words)
    monkeypatch.setattr(machine, "_LIMITS", (str(tmp_path / "none"), str(file)))


@pytest.mark.parametrize("words", ["max\n", "9223372036854771712\n"])
def test_without_a_limit_the_memory_is_that_of_the_machine(monkeypatch, tmp_path, words):
    limited(monkeypatch, tmp_path, words)
    assert machine.total_memory() == psutil.virtual_memory().total
    assert 0 < machine.free_memory() < machine.total_memory()


def test_a_container_has_what_its_limit_leaves_free(monkeypatch, tmp_path):
    held = psutil.Process().memory_info().rss
    limited(monkeypatch, tmp_path, f"{held + 64 * MIB}\n")
    assert machine.total_memory() == held + 64 * MIB
    assert machine.free_memory() == pytest.approx(64 * MIB, abs=16 * MIB)
    limited(monkeypatch, tmp_path, f"{held // 2}\n")
    assert machine.free_memory() == 0


PER_LAYER, OUTSIDE = 16, 10
PROMPT = [5, 6, 7]


class Counted(TorchDispatchMode):
    """Counts operators that compute something, so not those that return a view."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func._schema.returns
        is_view = any(one.alias_info and not one.alias_info.is_write for one in returned)
        self.count += not is_view
        return func(*args, **kwargs or {})


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eab.engine.compiled.can_compile", lambda: False)


@torch.inference_mode()
def operators_of_a_step(layers: int) -> int:
    """Of a forward pass of three paths with padded attention, as on CUDA."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = wrap_model(LlamaForCausalLM(config), word_tokenizer(64), "tiny")
    assert model.card.own_decoder
    cache = TreeCache(model.kv_shape, 8, 2**20, padded=True)
    model.forward([cache.prepare([0], [PROMPT])])
    cache.fork(0, [1, 2, 3])
    batch = cache.prepare([1, 2, 3], [[8], [9], [10]])
    with Counted() as counted:
        model.forward([batch])
    return counted.count


def test_a_layer_dispatches_at_most_sixteen_operators():
    two, four = operators_of_a_step(2), operators_of_a_step(4)
    assert (four - two) / 2 <= PER_LAYER
    assert two - 2 * (four - two) / 2 <= OUTSIDE
