"""One weight matrix of a model that the server has loaded, for a page that shows it."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

MAX_WEIGHTS = 2**20  # of one matrix; of a larger one, evenly spaced rows are taken


def names(model: "LanguageModel") -> list[str]:
    """The names of its weight matrices, in the order in which a token meets them."""
    return [*_modules(model)]


def matrix(model: "LanguageModel", name: str) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """A weight matrix, or evenly spaced rows of a large one, and the shape of the whole matrix.

    Args:
        model: A model as `ModelCache` loads it.
        name: One of its `names`.
    """
    from eab.models.weight_matrices import matrix_of

    weight = matrix_of(_modules(model)[name])
    rows, columns = weight.shape
    every = -(-rows * columns // MAX_WEIGHTS)
    return weight[::every].numpy(), (rows, columns)


def _modules(model: Any) -> Any:
    return model.weight_matrices
