"""Weight layouts compute what the loaded layers compute, are used only where they can help, and all
hold the same matrix.
"""

import weakref

import pytest
import torch
from torch import nn

from eab.engine import compiled
from eab.engine.models import weights
from eab.engine.models.loading import load_model
from eab.engine.models.weights import LAYOUTS, PrepackedLinear, apply_layout, best_layout
from eab.errors import ModelError

WORKING = [name for name in LAYOUTS if name != "tiled" or compiled.can_compile()]


@pytest.mark.parametrize(
    ("compiles", "prepacks", "expected"),
    [(True, True, "tiled"), (False, True, "prepacked"), (False, False, "plain")],
)
def test_the_layout_is_the_best_that_works_here(compiles, prepacks, expected, monkeypatch):
    monkeypatch.setattr(compiled, "can_compile", lambda: compiles)
    monkeypatch.setattr(weights, "_can_prepack", lambda: prepacks)
    large, small = nn.Linear(1000, 1000), nn.Linear(1000, 999)
    assert best_layout(nn.Sequential(large)) == expected
    assert best_layout(nn.Sequential(small)) == "plain"
    assert best_layout(nn.Sequential(large.double())) == "plain"
    with pytest.raises(ModelError, match="'tiled'; it works only for float32 weights on the CPU"):
        apply_layout(nn.Sequential(large), "tiled")


@pytest.mark.parametrize("name", ["plain", *WORKING])
def test_a_layout_can_be_forced_and_computes_the_same_products(name):
    for bias in (True, False):
        linear = nn.Linear(70, 130, bias=bias)
        model = nn.Sequential(linear)
        assert apply_layout(model, name) == name
        assert (model[0] is linear) == (name == "plain")
        for rows in (1, 3, 20, 300):
            x = torch.randn(1, rows, 70)
            with torch.inference_mode():
                torch.testing.assert_close(model(x), linear(x), rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    """A model whose output layer shares its weight with the input embedding."""

    def __init__(self, embedding: type[nn.Embedding] = nn.Embedding) -> None:
        super().__init__()
        self.embedding, self.body = embedding(50, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(ids)))


def test_output_weights_shared_with_the_embedding_are_not_held_twice_where_memory_is_short(
    monkeypatch,
):
    for free, kept in ((10**12, False), (1000, True)):
        model = Tied()
        monkeypatch.setattr(weights, "free_memory", lambda free=free: free)
        apply_layout(model, "prepacked")
        assert (model.head.weight is model.embedding.weight) is kept
        assert type(model.body) is PrepackedLinear


@pytest.mark.skipif(not compiled.can_compile(), reason="nothing can be compiled here")
@torch.inference_mode()
def test_tiled_output_weights_are_still_shared_with_the_embedding():
    model, ids = Tied(), torch.tensor([[0, 49, 7], [7, 8, 15]])
    vectors, logits = model.embedding(ids), model(ids)
    apply_layout(model, "tiled")
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.embedding(ids), vectors)
    torch.testing.assert_close(model(ids), logits)

    class Scaled(nn.Embedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(ids)

    model = Tied(Scaled)
    logits = model(ids)
    apply_layout(model, "tiled")
    assert type(model.embedding) is Scaled
    torch.testing.assert_close(model(ids), logits)


def test_at_most_one_matrix_is_held_twice_while_the_layout_is_applied(monkeypatch):
    model, alive = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5))), []
    loaded = [weakref.ref(layer.weight) for layer in model]

    def count(linear: nn.Linear) -> nn.Module:
        alive.append(sum(weight() is not None for weight in loaded))
        return PrepackedLinear(linear)

    monkeypatch.setitem(LAYOUTS, "prepacked", count)
    apply_layout(model, "prepacked")
    assert alive == [5, 4, 3, 2, 1]
    embedded = load_model("embedded", device="cpu")
    found = embedded.weight_matrices
    assert len(found) == 2 + 7 * embedded.card.layers, "the embedding and all linear layers"
    assert "model.layers.0.self_attn.q_proj" in found
    assert found["lm_head"].out_features == embedded.card.vocab_size
