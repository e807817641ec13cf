"""The entropy threshold of a run in nats, from its settings and those of its greedy probe."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from eab.config import OF_DISTRIBUTION, BranchingConfig
from eab.errors import ConfigError
from eab.run.events import RunStarted

PROBE_STEPS: Final = 24  # they delay the first token of the run, so they are few
PROBE_FLOOR: Final = 0.3  # nats; else a confident prompt would fork where it is sure
_ROUNDING: Final = 1e-3  # relative; passes of other sizes round entropies otherwise
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


def longer(started: RunStarted) -> BranchingConfig:
    """The settings that make the tree of this run again and go on, to twice as many new tokens.

    The draws depend only on the seed and the place in the tree. A longer run has the same rank
    threshold only if its probe is not longer; otherwise the threshold is given in nats.
    Raises ConfigError if so many new tokens are not allowed, or the tree would be another one.
    """
    config = started.config
    if not config.by_step:
        raise ConfigError(
            "with the policy best-first, a run with more new tokens is another search, which does "
            "not go on from this one; run the prompt again with a higher max_new_tokens"
        )
    if config.threshold_unit == "rank" and config.max_new_tokens < PROBE_STEPS:
        nats = started.threshold_nats
        config = replace(config, entropy_threshold=nats, threshold_unit="nats")
    return replace(config, max_new_tokens=2 * config.max_new_tokens)


def threshold_in_nats(
    config: BranchingConfig, vocab_size: int, entropies: Sequence[float] = ()
) -> float:
    """The threshold in nats; `entropies` are those of the greedy probe, for a rank."""
    match config.threshold_unit:
        case "nats":
            return config.entropy_threshold
        case "normalised":
            return config.entropy_threshold * math.log(vocab_size)
        case "rank":
            return rank_in_nats(entropies, config.entropy_threshold)


def rank_in_nats(entropies: Sequence[float], rank: float) -> float:
    """The probe's entropy (nats) of this rank, from 1 for the highest; ranks between two entropies
    are interpolated linearly. Not below the floor, and not above the first entropy that reaches the
    floor: what a text is about often depends on its first uncertain word.
    """
    unsure = [entropy for entropy in entropies if entropy >= PROBE_FLOOR]
    if not unsure:
        return PROBE_FLOOR
    ordered, place = sorted(unsure, reverse=True), min(rank, len(unsure)) - 1
    above, below = ordered[math.floor(place)], ordered[math.ceil(place)]
    ranked = above + (below - above) * (place - math.floor(place))
    return max(PROBE_FLOOR, (1 - _ROUNDING) * min(ranked, unsure[0]))
