"""Weight layouts compute what the loaded layers compute, are used only where they can help, and all
hold the same matrix.
"""

import weakref

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from eab import compiled
from eab.errors import ModelError
from eab.models import layout_memory, weight_layouts
from eab.models.loading import load_model
from eab.models.weight_layouts import (
    LAYOUTS,
    apply_fastest_layout,
    apply_layout,
    clearly_fastest,
    measure_layouts,
)
from eab.models.weight_matrices import matrix_modules, matrix_of
from eab.timing import Timing

WORKING = [name for name in LAYOUTS if name != "tiled" or compiled.can_compile()]
WILD = {"plain": Timing((1.0, 4.0) * 5), "transposed": Timing((0.5, 3.0) * 5)}


def steady(**seconds: float) -> dict[str, Timing]:
    """Timings without spread."""
    return {name: Timing((one,) * 9) for name, one in seconds.items()}


@pytest.fixture
def no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Measure small models, too, and remember the choices in a temporary file."""
    monkeypatch.setattr(weight_layouts, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(weight_layouts, "MIN_TILED", 0)
    monkeypatch.setenv(layout_memory.VARIABLE, str(tmp_path / "layouts.json"))


def test_a_layout_that_computes_something_else_is_never_chosen(monkeypatch):
    class Lazy(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.out = torch.zeros(linear.out_features)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out.expand(*x.shape[:-1], -1)

    monkeypatch.setattr(weight_layouts, "LAYOUTS", {"lazy": Lazy})
    monkeypatch.setattr(weight_layouts, "MAX_SECONDS", 0.0)
    assert [*measure_layouts([nn.Linear(600, 600) for _ in range(3)])] == ["plain"]


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        (steady(plain=1.0, prepacked=0.9, transposed=0.5), "transposed"),
        (steady(plain=1.0, prepacked=0.9, transposed=0.95), "plain"),
        (steady(plain=1.0, prepacked=1.1), "plain"),
    ],
    ids=["clearly", "hardly", "slower"],
)
def test_a_layout_is_chosen_only_if_it_is_clearly_faster(timings, expected):
    assert clearly_fastest(timings) == expected


def test_all_layouts_are_measured(monkeypatch):
    monkeypatch.setattr(weight_layouts, "MAX_SECONDS", 0.0)
    timings = measure_layouts([nn.Linear(64, 64)])
    assert [*timings] == ["plain", *WORKING]
    assert all(timing.median > 0 for timing in timings.values())


def test_a_settled_choice_is_remembered_and_an_unsettled_one_is_not(no_limit, monkeypatch):
    measured = []

    def measure(timings):
        monkeypatch.setattr(
            weight_layouts, "measure_layouts", lambda linears: measured.append(1) or timings
        )
        return apply_fastest_layout(nn.Sequential(nn.Linear(8, 16)))

    assert (measure(WILD), len(measured)) == ("transposed", 1)
    assert (measure(steady(plain=1.0, prepacked=0.5)), len(measured)) == ("prepacked", 2)
    assert (measure(WILD), len(measured)) == ("prepacked", 2)
    apply_fastest_layout(nn.Sequential(nn.Linear(8, 17)))
    assert len(measured) == 3  # another shape


@pytest.mark.parametrize("content", ["", "[1]", '{"', "[[[["])
def test_a_damaged_memory_counts_as_empty(no_limit, tmp_path, content):
    (tmp_path / "layouts.json").write_text(content)
    assert layout_memory.recall("a") == ""
    layout_memory.remember("a", "plain")
    assert layout_memory.recall("a") == "plain"


def test_a_memory_that_cannot_be_written_is_ignored(monkeypatch):
    for named in ("off", "/dev/null/layouts.json"):
        monkeypatch.setenv(layout_memory.VARIABLE, named)
        layout_memory.remember("a", "plain")
        assert layout_memory.recall("a") == ""


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


def test_a_layout_for_unsupported_weights_is_refused_with_an_explanation():
    with pytest.raises(
        ModelError, match="'transposed'; it works only for float32 weights on the CPU"
    ):
        apply_layout(nn.Sequential(nn.Linear(8, 8).double()), "transposed")


def test_small_models_and_other_types_are_not_measured(no_limit, monkeypatch):
    monkeypatch.setattr(
        weight_layouts, "measure_layouts", lambda linears: pytest.fail("nothing to measure here")
    )
    assert apply_fastest_layout(nn.Sequential(nn.Linear(8, 8).double())) == "plain"
    monkeypatch.setattr(weight_layouts, "MIN_WEIGHTS", 1000)
    monkeypatch.setattr(weight_layouts, "MIN_TILED", 500)
    small, smaller = (nn.Sequential(nn.Linear(8, outputs)) for outputs in (100, 8))
    assert apply_fastest_layout(small) == ("tiled" if compiled.can_compile() else "plain")
    assert apply_fastest_layout(smaller) == "plain"


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
    no_limit, monkeypatch
):
    timings = steady(plain=1.0, transposed=0.5)
    monkeypatch.setattr(weight_layouts, "measure_layouts", lambda linears: timings)
    for free, kept in ((10**12, False), (1000, True)):
        model = Tied()
        monkeypatch.setattr(weight_layouts, "free_memory", lambda free=free: free)
        apply_fastest_layout(model)
        assert (model.head.weight is model.embedding.weight) is kept
        assert not model.body.weight.is_contiguous()


@pytest.mark.skipif(not compiled.can_compile(), reason="nothing can be compiled here")
@torch.inference_mode()
def test_tiled_output_weights_are_still_shared_with_the_embedding():
    model, ids = Tied(), torch.tensor([[0, 49, 7], [7, 8, 15]])
    vectors, logits = model.embedding(ids), model(ids)
    apply_layout(model, "tiled")
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.embedding(ids), vectors)
    torch.testing.assert_close(model(ids), logits)
    assert torch.equal(matrix_of(model.embedding), matrix_of(model.head))

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
        return weight_layouts.transpose_weight(linear)

    monkeypatch.setitem(LAYOUTS, "transposed", count)
    apply_layout(model, "transposed")
    assert alive == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("layout", ["plain", *WORKING])
def test_the_matrix_is_the_same_in_every_layout(layout):
    linear = nn.Linear(48, 32, bias=False)
    stored = linear if layout == "plain" else LAYOUTS[layout](linear)
    [(name, module)] = matrix_modules(nn.Sequential(stored)).items()
    assert name == "0"
    assert torch.equal(matrix_of(module), linear.weight.detach())


def test_the_matrix_of_gpt2_is_transposed():
    layer = Conv1D(32, 48)
    assert torch.equal(matrix_of(layer), layer.weight.detach().t())


def test_the_embedded_model_has_matrices_for_its_embedding_and_all_linear_layers():
    model = load_model("embedded", device="cpu")
    found = {name: matrix_of(module) for name, module in model.weight_matrices.items()}
    layers = model.card.layers
    assert len(found) == 2 + 7 * layers
    assert found["model.layers.0.self_attn.q_proj"].dtype == torch.float32
    assert found["lm_head"].shape[0] == model.card.vocab_size
