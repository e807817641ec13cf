"""What to change after a run that shows little: no fork, the path limit at once, or no memory
left.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

from eab.run import Run

FORKS_WANTED: Final = 3
AT_ONCE: Final = 5  # steps
MOST_PATHS: Final = 64


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Words for a button, and the widgets that it sets (their keys without `set_`)."""

    label: str
    widgets: dict[str, Any]


def suggestions(run: Run) -> list[Suggestion]:
    """At most two, for a run that has ended; none where there is nothing to mend."""
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
    if first is not None and first <= AT_ONCE and config.max_paths < MOST_PATHS:
        more = min(MOST_PATHS, 2 * config.max_paths)
        return [
            Suggestion(
                f"The path limit acts from step {first} on: allow {more} paths and run",
                {"max_paths": more},
            )
        ]
    return []


def _halved(name: str, value: int, what: str) -> list[Suggestion]:
    return (
        [Suggestion(f"Run with half the {what}: {value // 2}", {name: value // 2})]
        if value >= 2
        else []
    )


def _lower_threshold(run: Run, threshold: float) -> list[Suggestion]:
    """To what some tokens of this run reach, rounded down so that they still do."""
    highest = sorted((token.entropy for path in run.paths for token in path.tokens), reverse=True)[
        :FORKS_WANTED
    ]
    value = math.floor(highest[-1] * 100) / 100 if highest else 0.0
    if not 0 < value < threshold:
        return []
    widgets = {"threshold_unit": "nats", "threshold_nats": value}
    return [
        Suggestion(
            f"Set the threshold to {value:.2f} nats, which this run reached {len(highest)} times, and run",
            widgets,
        )
    ]
