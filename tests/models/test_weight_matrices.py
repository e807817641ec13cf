"""Every layout gives the matrix that was loaded."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from eab.models.loading import load_model
from eab.models.weight_layouts import LAYOUTS
from eab.models.weight_matrices import matrix_modules, matrix_of


@pytest.mark.parametrize("layout", ["plain", *LAYOUTS])
def test_the_matrix_is_the_same_in_every_layout(layout):
    linear = nn.Linear(48, 32, bias=False)
    stored = linear if layout == "plain" else LAYOUTS[layout](linear)
    [(name, module)] = matrix_modules(nn.Sequential(stored)).items()
    assert name == "0"
    assert torch.equal(matrix_of(module), linear.weight.detach())


def test_the_matrix_of_gpt2_is_turned():
    layer = Conv1D(32, 48)
    assert torch.equal(matrix_of(layer), layer.weight.detach().t())


def test_the_embedded_model_has_its_embedding_and_all_linear_layers():
    model = load_model("embedded", device="cpu")
    found = {name: matrix_of(module) for name, module in model.weight_matrices.items()}
    layers = model.card.layers
    assert len(found) == 2 + 7 * layers
    assert found["model.layers.0.self_attn.q_proj"].dtype == torch.float32
    assert found["lm_head"].shape[0] == model.card.vocab_size
