"""What to change after a run without a fork, with an early path limit, or without enough memory."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eab.errors import EabError
from eab.events import Event
from eab.formatting import apart, counted
from eab.run import RunState, fold

EARLY: Final = 1 / 3  # share of the steps
ROOM: Final = 0.4  # share of the allowed branches that may be expected by then
_MOST_GROWTH: Final = 50.0  # its exponential is beyond any path limit


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change, offered as a button."""

    why: str  # a sentence
    label: str
    widgets: dict[str, Any]  # values by widget key, without `set_`
    # a threshold (nats) whose tree is known without the model; None if a new run is needed
    what_if: float | None = None


def suggestion(events: Sequence[Event]) -> Suggestion | None:
    """The suggestion for an ended run; None if nothing needs to change."""
    run = fold(events)
    if run.ended is None or run.started.imported:
        return None
    config = run.started.config
    if run.ended.reason == "failed":
        fewer_paths = _halved("max_paths", config.max_paths, "paths")
        return fewer_paths or _halved("max_new_tokens", config.max_new_tokens, "new tokens")
    if not run.forks():
        return _lower_threshold(run, run.started.threshold_nats)
    first = min((path.limited_steps[0] for path in run.paths if path.limited_steps), default=None)
    if first is None or first >= EARLY * len(run.steps):
        return None
    return _fewer_forks(run, events, first)


def _halved(name: str, value: int, unit: str) -> Suggestion | None:
    half = value // 2
    return Suggestion("", f"Run with {half} {unit}", {name: half}) if half else None


def _lower_threshold(run: RunState, threshold: float) -> Suggestion | None:
    """Suggest the highest entropy of this run, rounded down, as the threshold (nats)."""
    highest = run.highest_entropy
    value = _rounded_down(highest)
    if not 0 < value < threshold:
        return None
    below, above = apart(highest, threshold)
    return Suggestion(
        f"No fork: the entropy stayed below {above} nats; its highest value was {below}.",
        f"Run at {value:.2f} nats",
        {"threshold_unit": "nats", "threshold_nats": value},
    )


def _fewer_forks(run: RunState, events: Sequence[Event], first: int) -> Suggestion | None:
    """Raise the threshold to the lowest value at which the path limit hardly acts early."""
    most = run.started.config.max_paths
    early = math.ceil(EARLY * len(run.steps))
    higher = sorted(
        value
        for value in {_rounded_down(entropy) for entropy in run.entropies()}
        if value > run.started.threshold_nats
    )
    place = bisect_left(
        higher, True, key=lambda value: expected_paths(run, value, early) <= 1 + ROOM * (most - 1)
    )
    if place == len(higher):
        return None
    threshold = higher[place]
    count, is_exact = texts_at(events, threshold) or (0, False)
    expected = min(most, round(expected_paths(run, threshold, len(run.steps))))
    texts = counted(count, "text") if is_exact else f"about {counted(expected, 'text')}"
    return Suggestion(
        f"Path limit reached at step {first}.",
        f"Fork above {threshold:.2f} nats: {texts}",
        {"threshold_unit": "nats", "threshold_nats": threshold},
        threshold if is_exact else None,
    )


def expected_paths(run: RunState, threshold: float, steps: int) -> float:
    """The expected number of paths after this many steps at another threshold (nats), without a
    path limit.

    If a share p of the tokens reaches the threshold and each fork has k branches, each step
    multiplies the number of paths by 1 + p (k - 1). A token counts by the weight of its path,
    because there are many light paths, few of which would exist at another threshold.
    """
    tokens = [(path.weight, token.entropy or 0.0) for path in run.paths for token in path.tokens]
    total = sum(weight for weight, _ in tokens)
    share = sum(weight for weight, entropy in tokens if entropy >= threshold) / (total or 1.0)
    growth = math.log1p(share * (run.started.config.branch_factor - 1))
    return math.exp(min(steps * growth, _MOST_GROWTH))


def texts_at(events: Sequence[Event], threshold: float) -> tuple[int, bool] | None:
    """How many texts the run has at another threshold (nats), as far as known without the model,
    and whether the number is exact. None if nothing is known.
    """
    from eab.what_if.resimulate import resimulate  # imports torch

    try:
        run = fold(resimulate(events, threshold).events)
    except EabError:  # the policy ignores the threshold, or the model is needed
        return None
    return len(run.leaves()), run.started.what_if == "exact"


def _rounded_down(nats: float) -> float:
    """Round down to a step of the slider."""
    return math.floor(nats * 100) / 100
