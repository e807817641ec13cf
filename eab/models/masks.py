"""Which earlier tokens each token attends to, according to the model's masks.

transformers builds a mask from a function of two positions. While a model is checked, this function
is recorded. So the mask is known for every length, without a pass over a long text.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers.masking_utils import sdpa_mask

from eab.caches.layers import EVERYTHING, Reach

MAX_POSITION: Final = 2**17  # longer contexts are checked up to here only
_NUMBER_OF_PROBES: Final = 16  # positions, in addition to those next to the limits


@dataclass(frozen=True, slots=True, eq=False)
class MaskRule:
    """A mask of one forward pass, and the function that built it."""

    mask: Tensor
    sees: Callable[..., Tensor]  # (text, head, position, earlier position) -> bool
    size: int  # of the window or chunk; 0 if there is none

    def made(self, mask: Tensor) -> bool:
        """Whether this mask is the rule's mask or a part of it."""
        return mask is self.mask or mask.data_ptr() == self.mask.data_ptr()

    def reach(self, context: int) -> Reach | None:
        """What the mask lets a token attend to, in texts of up to `context` tokens; None if the
        caches do not know such a reach.
        """
        known = [EVERYTHING]
        known += [Reach(window=self.size), Reach(chunk=self.size)] if self.size > 0 else []
        last = min(context, MAX_POSITION) - 1
        return next((reach for reach in known if self._agrees(reach, last)), None)

    def _agrees(self, reach: Reach, last: int) -> bool:
        near = [factor * self.size + more for factor in (1, 2, 3) for more in (-2, -1, 0, 1)]
        even = np.linspace(0, last, _NUMBER_OF_PROBES, dtype=np.int64).tolist()
        probes = {at for at in (*range(3), *near, *even) if 0 <= at <= last}
        return all(self._agrees_at(reach, at) for at in sorted(probes))

    def _agrees_at(self, reach: Reach, at: int) -> bool:
        """Compare at one position, including the next tokens, which must stay hidden."""
        rows = np.arange(at + 3)
        expected = reach.sees(np.array([at]), rows)[0] & (rows <= at)
        device, zero = self.mask.device, torch.zeros((), dtype=torch.int64)
        numbers = (zero, zero, torch.tensor(at), torch.from_numpy(rows))
        try:
            seen = self.sees(*(number.to(device) for number in numbers))
        except (IndexError, RuntimeError):  # it depends on the text
            return False
        return bool((seen.cpu() == torch.from_numpy(expected)).all())


_noted: ContextVar[list[MaskRule] | None] = ContextVar("noted", default=None)


@contextmanager
def noting_masks() -> Iterator[list[MaskRule]]:
    """Collect the rules of all masks that are built in the block."""
    rules: list[MaskRule] = []
    token = _noted.set(rules)
    try:
        yield rules
    finally:
        _noted.reset(token)


def cache_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Mask function for transformers: its own for SDPA, recorded while a model is checked."""
    rules = _noted.get()
    if rules is None:
        plain: Tensor | None = sdpa_mask(*args, **kwargs)
        return plain
    kwargs |= {"allow_is_causal_skip": False}
    mask = sdpa_mask(*args, **kwargs)
    if mask is not None and "mask_function" in kwargs:
        rules.append(MaskRule(mask, kwargs["mask_function"], int(kwargs.get("local_size") or 0)))
    return mask
