"""What to change after a run without a fork, with an early path limit, or without enough memory."""

import math
from dataclasses import dataclass
from typing import Any, Final

from eab.config import SETTINGS
from eab.run import Run

EARLY: Final = 5  # steps


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A button of the page.

    Attributes:
        why: What it is about, in a sentence.
        label: Its words.
        widgets: The settings that it changes: keys of widgets, without `set_`.
    """

    why: str
    label: str
    widgets: dict[str, Any]


def suggestions(run: Run) -> list[Suggestion]:
    """At most two suggestions for a run that has ended; none if nothing needs to be changed."""
    if run.ended is None:
        return []
    config = run.started.config
    if run.ended.reason == "failed":
        return [
            *_halved("max_paths", config.max_paths, "paths"),
            *_halved("max_new_tokens", config.max_new_tokens, "new tokens"),
        ]
    if not any(path.status == "forked" for path in run.paths):
        return _lower_threshold(run, run.started.threshold_nats)
    first = min((path.limited_steps[0] for path in run.paths if path.limited_steps), default=None)
    slider = SETTINGS["max_paths"].widget
    more = slider.nearest(2 * config.max_paths) if slider is not None else 0
    if first is not None and first <= EARLY and config.max_paths < more:
        why = f"Path limit reached at step {first}."
        return [Suggestion(why, f"Run with {more} paths", {"max_paths": more})]
    return []


def _halved(name: str, value: int, unit: str) -> list[Suggestion]:
    if value < 2:
        return []
    return [Suggestion("", f"Run with {value // 2} {unit}", {name: value // 2})]


def _lower_threshold(run: Run, threshold: float) -> list[Suggestion]:
    """Lower the threshold (nats) to the highest entropy of this run, rounded down."""
    highest = max((token.entropy for path in run.paths for token in path.tokens), default=0.0)
    value = math.floor(highest * 100) / 100
    if not 0 < value < threshold:
        return []
    return [
        Suggestion(
            f"No fork: the entropy stayed below {threshold:.2f} nats; its highest value was "
            f"{highest:.2f}.",
            f"Run at {value:.2f} nats",
            {"threshold_unit": "nats", "threshold_nats": value},
        )
    ]
