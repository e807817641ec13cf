"""Linear layers whose weight the model's own code reads directly, as in Mamba.

They stay as loaded: other code cannot use a packed or quantized weight as a matrix.
"""

import inspect
import re
from collections.abc import Hashable
from functools import cache
from typing import Final, cast

from torch import nn

_READ: Final = re.compile(r"self\.(\w+)\.weight\b(?!\.(?:dtype|device|shape|size)|\s*=[^=])")


def read_by_code(model: nn.Module) -> frozenset[str]:
    """The names of such layers in a model."""
    return frozenset(
        f"{path}.{name}" if path else name
        for path, parent in model.named_modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and name in _read_by(cast(Hashable, type(parent)))
    )


@cache
def _read_by(kind: Hashable) -> frozenset[str]:
    """The layers whose weight the code of this class reads, other than its dtype or size."""
    try:
        code = inspect.getsource(cast(type, kind))
    except (OSError, TypeError):
        return frozenset()
    if "pretraining_tp" in code:  # read only with this setting, which no model uses
        return frozenset()
    return frozenset(_READ.findall(code))
