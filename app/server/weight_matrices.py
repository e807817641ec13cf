"""One weight matrix of a model, for a page that shows it.

Those of the embedded model are read from its file, so that a first visit does not wait for torch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from app.server.model_cache import EMBEDDED
from eab.models import embedded_weights

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

MAX_WEIGHTS = 2**20  # of one matrix; of a larger one, only evenly spaced rows are used
Load = Callable[[str], "LanguageModel"]


def names(model_name: str, load: Load) -> list[str]:
    """The names of a model's weight matrices, in the order in which a token passes through them.
    Raises ModelError if the model cannot be loaded.
    """
    if model_name == EMBEDDED:
        return embedded_weights.matrix_names()
    return [*_modules(load(model_name))]


def matrix(model_name: str, name: str, load: Load) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """A weight matrix, or evenly spaced rows of a large one, and the shape of the whole matrix."""
    weight = (
        embedded_weights.matrix(name) if model_name == EMBEDDED else _loaded(load(model_name), name)
    )
    rows, columns = weight.shape
    every = -(-rows * columns // MAX_WEIGHTS)
    return weight[::every], (rows, columns)


def _loaded(model: "LanguageModel", name: str) -> NDArray[np.float32]:
    from eab.models.weight_matrices import matrix_of

    weight: NDArray[np.float32] = matrix_of(_modules(model)[name]).numpy()
    return weight


def _modules(model: Any) -> Any:
    return model.weight_matrices
