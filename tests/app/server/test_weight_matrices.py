"""The matrices read from the file of the embedded model equal those of the loaded model."""

import numpy as np
import pytest

from app.server import model_cache
from app.server.model_cache import EMBEDDED
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.models.weights import matrix_of


def refuse(name: str) -> LanguageModel:
    raise AssertionError(f"{name} was loaded")


def test_the_file_of_the_embedded_model_holds_the_loaded_matrices() -> None:
    model = load_model(EMBEDDED, device="cpu", dtype="float32")
    names = model_cache.names(EMBEDDED, refuse)
    assert names == [name for name in model.weight_matrices if name != "lm_head"]  # it is tied
    for name in names[:: len(names) // 5]:
        found, shape = model_cache.matrix(EMBEDDED, name, refuse)
        loaded = matrix_of(model.weight_matrices[name]).numpy()
        assert shape == loaded.shape
        every = -(-loaded.size // model_cache.MAX_WEIGHTS)
        assert np.array_equal(found, loaded[::every])


@pytest.mark.parametrize("most", [4096, 2**20])
def test_a_large_matrix_is_sampled_at_evenly_spaced_rows(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(model_cache, "MAX_WEIGHTS", most)
    model = load_model(EMBEDDED, device="cpu", dtype="float32")
    name = "model.layers.0.mlp.up_proj"
    found, (rows, columns) = model_cache.matrix("another", name, lambda _: model)
    assert found.size <= most
    assert found.shape[1] == columns
    assert len(found) == -(-rows // -(-rows * columns // most))
