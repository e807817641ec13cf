"""Linear layers whose weight the model's own code reads, besides calling the layer, as Mamba does.

They stay as loaded: a packed or quantized weight is no matrix that other code can use.
"""

import inspect
import re
from collections.abc import Hashable
from functools import cache
from typing import Final, cast

from torch import nn

_READ: Final = re.compile(r"self\.(\w+)\.weight\b(?!\.(?:dtype|device|shape|size)|\s*=[^=])")


def read_by_code(model: nn.Module) -> frozenset[str]:
    """The names of these layers in the model."""
    return frozenset(
        f"{path}.{name}" if path else name
        for path, parent in model.named_modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and name in _read_by(cast(Hashable, type(parent)))
    )


@cache
def _read_by(kind: Hashable) -> frozenset[str]:
    """The layers whose weight the code of this class reads; its data type or size do not count."""
    try:
        code = inspect.getsource(cast(type, kind))
    except (OSError, TypeError):
        return frozenset()
    if "pretraining_tp" in code:  # only then, which no model is used with
        return frozenset()
    return frozenset(_READ.findall(code))
