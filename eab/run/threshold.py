"""The entropy threshold of a run in nats, from its settings."""

import math
from collections.abc import Sequence
from typing import Final

from eab.config import BranchingConfig

PROBE_FLOOR: Final = 0.3  # nats; a confident prompt would fork at its own low quantile


def threshold_in_nats(
    config: BranchingConfig, vocab_size: int, entropies: Sequence[float] = ()
) -> float:
    """The threshold of the settings in nats.

    Args:
        config: The settings.
        vocab_size: How many tokens the model can predict.
        entropies: Those of the greedy probe (nats), if the threshold is a quantile of them.
    """
    match config.threshold_unit:
        case "nats":
            return config.entropy_threshold
        case "normalised":
            return config.entropy_threshold * math.log(vocab_size)
        case "quantile":
            return max(PROBE_FLOOR, _quantile(entropies, config.entropy_threshold))


def _quantile(values: Sequence[float], share: float) -> float:
    """The quantile of some values, linear between two of them; 0 where there are none."""
    if not values:
        return 0.0
    ordered, place = sorted(values), share * (len(values) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))
