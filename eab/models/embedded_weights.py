"""The weight matrices of the embedded model, read without torch."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from eab.assets import ASSETS

FILE: Final = ASSETS / "model" / "model.safetensors"
# The matrices of a layer, in the order in which a token passes through them.
_IN_A_LAYER: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def matrix_names() -> list[str]:
    """The names of the matrices, in the order in which a token passes through them."""
    with safe_open(FILE, "numpy") as file:
        matrices = [key.removesuffix(".weight") for key in file.keys() if "norm" not in key]  # noqa: SIM118
    return sorted(matrices, key=_place)


def matrix(name: str) -> NDArray[np.float32]:
    """The matrix with this name, (out, in)."""
    with safe_open(FILE, "numpy") as file:
        weight: NDArray[np.float32] = file.get_tensor(f"{name}.weight").astype(np.float32)
    return weight


def _place(name: str) -> tuple[int, int]:
    """Sort key for the order of computation: the embeddings come before the layers."""
    layer, kind = re.search(r"layers\.(\d+)\.", name), name.split(".")[-1]
    return (int(layer[1]), _IN_A_LAYER.index(kind)) if layer else (-1, 0)
