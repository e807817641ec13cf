"""One weight matrix of a model, for a page that shows it.

Matrices of the embedded model are read from its file, so that a first visit does not wait for
torch. Those of other models come from the loaded model.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from app.server.model_cache import EMBEDDED
from eab.assets import ASSETS

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

MAX_WEIGHTS = 2**20  # of one matrix; of a larger one, only evenly spaced rows are used
EMBEDDED_FILE: Final = ASSETS / "model" / "model.safetensors"
# The matrices of a layer, in the order in which a token passes through them.
_IN_A_LAYER: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Load = Callable[[str], "LanguageModel"]


def names(model_name: str, load: Load) -> list[str]:
    """The names of a model's weight matrices, in the order in which a token passes through them.
    Raises ModelError if the model cannot be loaded.
    """
    if model_name == EMBEDDED:
        return _embedded_names()
    return [*_modules(load(model_name))]


def matrix(model_name: str, name: str, load: Load) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """A weight matrix, or evenly spaced rows of a large one, and the shape of the whole matrix."""
    weight = _embedded(name) if model_name == EMBEDDED else _loaded(load(model_name), name)
    rows, columns = weight.shape
    every = -(-rows * columns // MAX_WEIGHTS)
    return weight[::every], (rows, columns)


def _embedded_names() -> list[str]:
    from safetensors import safe_open

    with safe_open(EMBEDDED_FILE, "numpy") as file:
        matrices = [key.removesuffix(".weight") for key in file.keys() if "norm" not in key]  # noqa: SIM118
    return sorted(matrices, key=_place)


def _place(name: str) -> tuple[int, int]:
    """Sort key for the order of computation: the embeddings come before the layers."""
    layer, kind = re.search(r"layers\.(\d+)\.", name), name.split(".")[-1]
    return (int(layer[1]), _IN_A_LAYER.index(kind)) if layer else (-1, 0)


def _embedded(name: str) -> NDArray[np.float32]:
    from safetensors import safe_open

    with safe_open(EMBEDDED_FILE, "numpy") as file:
        weight: NDArray[np.float32] = file.get_tensor(f"{name}.weight").astype(np.float32)
    return weight


def _loaded(model: "LanguageModel", name: str) -> NDArray[np.float32]:
    from eab.models.weight_matrices import matrix_of

    weight: NDArray[np.float32] = matrix_of(_modules(model)[name]).numpy()
    return weight


def _modules(model: Any) -> Any:
    return model.weight_matrices
