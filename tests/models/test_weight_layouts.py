"""Weight layouts compute what the loaded layers compute, and are not used where they cannot help."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig

from eab.models import weight_layouts
from eab.models.weight_layouts import LAYOUTS, apply_fastest_layout, fastest_layout


@pytest.fixture
def no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_layouts, "MIN_WEIGHTS", 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_computes_the_same_products(name, bias):
    linear = nn.Linear(70, 130, bias=bias)
    layer = LAYOUTS[name](linear)
    for rows in (1, 3, 20, 300):
        x = torch.randn(1, rows, 70)
        with torch.inference_mode():
            torch.testing.assert_close(layer(x), linear(x), rtol=1e-4, atol=1e-5)


def test_a_layout_that_computes_something_else_is_never_chosen(monkeypatch):
    class Lazy(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.out = torch.zeros(linear.out_features)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out.expand(*x.shape[:-1], -1)

    monkeypatch.setattr(weight_layouts, "LAYOUTS", {"lazy": Lazy})
    assert fastest_layout([nn.Linear(600, 600) for _ in range(3)]) == "plain"


def test_the_fastest_layout_is_chosen_and_only_if_it_is_clearly_faster(monkeypatch):
    monkeypatch.setattr(
        weight_layouts, "LAYOUTS", {"slow": lambda linear: linear, "fast": lambda linear: linear}
    )
    for ratios, expected in (((0.9, 0.5), "fast"), ((0.9, 0.95), "plain")):
        ratio = iter(ratio for ratio in ratios for _ in weight_layouts.BATCH_SIZES)
        monkeypatch.setattr(
            weight_layouts, "_time_ratio", lambda plain, layers, rows, ratio=ratio: next(ratio)
        )
        assert fastest_layout([nn.Linear(8, 8)]) == expected


def test_layouts_are_timed_on_more_weights_than_processor_caches_hold_from_the_whole_model(
    monkeypatch,
):
    monkeypatch.setattr(weight_layouts, "BYTES_TIMED", 4 * 64 * 10)
    sample = weight_layouts._sample([nn.Linear(8, 8) for _ in range(40)])
    assert len(sample) == 10
    assert len(weight_layouts._sample([nn.Linear(8, 8) for _ in range(5)])) == 5


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_whole_model_answers_the_same_in_every_layout(make_model, no_limit, monkeypatch, name):
    model = make_model(
        LlamaConfig(vocab_size=72, hidden_size=32, intermediate_size=48, num_attention_heads=4)
    ).float()
    ids = torch.arange(2, 14)[None]
    with torch.inference_mode():
        before = model(ids).logits
        monkeypatch.setattr(weight_layouts, "fastest_layout", lambda linears: name)
        assert apply_fastest_layout(model) == name
        torch.testing.assert_close(model(ids).logits, before, rtol=1e-4, atol=1e-4)


def test_small_models_and_other_types_stay_as_they_are(no_limit, monkeypatch):
    monkeypatch.setattr(
        weight_layouts, "fastest_layout", lambda linears: pytest.fail("nothing to measure here")
    )
    assert apply_fastest_layout(nn.Sequential(nn.Linear(8, 8).double())) == "plain"
    monkeypatch.setattr(weight_layouts, "MIN_WEIGHTS", 1000)
    assert apply_fastest_layout(nn.Sequential(nn.Linear(8, 8))) == "plain"


def test_output_weights_shared_with_the_embedding_are_not_held_twice_where_memory_is_short(
    no_limit, monkeypatch
):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.body = nn.Embedding(50, 8), nn.Linear(8, 8)
            self.head = nn.Linear(8, 50, bias=False)
            self.head.weight = self.embedding.weight

    monkeypatch.setattr(weight_layouts, "fastest_layout", lambda linears: "transposed")
    for free, kept in ((10**12, False), (1000, True)):
        model = Tied()
        monkeypatch.setattr(weight_layouts, "_free_memory", lambda free=free: free)
        apply_fastest_layout(model)
        assert (model.head.weight is model.embedding.weight) is kept
        assert not model.body.weight.is_contiguous()
