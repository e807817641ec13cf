"""The entropy threshold of a run in nats, from its settings and those of its greedy probe."""

import math
from collections.abc import Sequence
from typing import Final

from eab.config import OF_DISTRIBUTION, BranchingConfig

PROBE_STEPS: Final = 24  # they delay the first token of the run, so they are few
PROBE_FLOOR: Final = 0.3  # nats; else a confident prompt would fork at its own low quantile
# The settings that can change the probe's entropies, and those of its cache
_OF_THE_PROBE: Final = (
    *OF_DISTRIBUTION,
    *("stop", "chat", "system", "chat_template_kwargs"),
    *("cache", "r", "attention", "kv_limit_mib"),
)


def probe_config(config: BranchingConfig) -> BranchingConfig:
    """The settings of the greedy probe: only those of the run that can affect the probe."""
    return BranchingConfig(
        policy="greedy",
        max_paths=1,
        max_new_tokens=min(PROBE_STEPS, config.max_new_tokens),
        **{name: getattr(config, name) for name in _OF_THE_PROBE},
    )


def threshold_in_nats(
    config: BranchingConfig, vocab_size: int, entropies: Sequence[float] = ()
) -> float:
    """The threshold in nats; `entropies` are those of the greedy probe, for a quantile."""
    match config.threshold_unit:
        case "nats":
            return config.entropy_threshold
        case "normalised":
            return config.entropy_threshold * math.log(vocab_size)
        case "quantile":
            return quantile_in_nats(entropies, config.entropy_threshold)


def quantile_in_nats(entropies: Sequence[float], share: float) -> float:
    """A quantile of the probe's entropies (nats), linearly interpolated, at least the floor."""
    if not entropies:
        return PROBE_FLOOR
    ordered, place = sorted(entropies), share * (len(entropies) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return max(PROBE_FLOOR, below + (above - below) * (place - math.floor(place)))
