"""Default data of the lessons, used until the visitor has made a run."""

from functools import lru_cache
from typing import Final

import numpy as np

from eab.assets import ASSETS
from eab.labs.quantization.rounding import Floats
from eab.lessons.bundled_runs import batching, caches, draft_lengths, formats
from eab.lessons.sources import Sources
from eab.run import Run

_MODEL: Final = ASSETS / "model" / "model.safetensors"
_MATRIX: Final = "model.layers.0.self_attn.q_proj.weight"


def sources(run: Run) -> Sources:
    """This run, and the recordings and measurements that come with the project."""
    return Sources(run, caches, draft_lengths, batching, formats, matrix)


@lru_cache(maxsize=1)
def matrix() -> Floats:
    """A matrix of the first layer of the embedded model, (out, in)."""
    from safetensors import safe_open

    with safe_open(_MODEL, "numpy") as file:
        return np.asarray(file.get_tensor(_MATRIX), np.float32)
