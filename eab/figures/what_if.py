"""Sentences about what-if results, and marks where the engine might decide otherwise."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from eab.events import Event, RowsAllocated
from eab.figures.memory_captions import source
from eab.formatting import counted, human_bytes, listed
from eab.run import RunState, fold
from eab.what_if.trace import Unknown, Why

# Listed in this order; eab.what_if.trace.Unknown explains each reason.
_REASONS: Final[dict[Why, tuple[str, str]]] = {  # the noun that is counted, and its phrase
    "fork": ("place", "{} would fork too"),
    "limit": ("fork", "at {}, the path limit dropped some branches"),
    "heir": ("place", "at {}, another token may follow, because the path limit dropped branches"),
    "dropped": ("path", "{} that the path limit dropped would continue"),
    "ended": ("path", "{} would continue after the end of the recorded run"),
}
_MARKS: Final[dict[Why, str]] = {
    "fork": "Would fork here. Run the model to see the branches.",
    "limit": "The path limit dropped some branches here. Run the model to see them.",
    "heir": "Another token may follow here. Run the model to see it.",
    "dropped": (
        "The path limit dropped this path in the recorded run. Run the model to see how it "
        "continues."
    ),
    "ended": "The recorded run ended here. Run the model to continue.",
}


def tree_change_sentence(recorded: RunState, what_if: RunState) -> str:
    """How the tree changes with the threshold."""
    before, after = recorded.started.threshold_nats, what_if.started.threshold_nats
    if before == after:
        return f"Threshold {before:.2f} nats, as recorded: {_size(what_if)}."
    if what_if.started.what_if == "exact" and _tree(what_if) == _tree(recorded):
        low, high = sorted((before, after))
        return f"No fork changes between {low:.2f} and {high:.2f} nats: {_size(what_if)}."
    return (
        f"At {after:.2f} nats: {_size(what_if)}; recorded at {before:.2f} nats: {_size(recorded)}."
    )


def exactness_sentence(what_if: RunState, unknowns: Sequence[Unknown], how_to_run: str) -> str:
    """Whether running the model (see `how_to_run`) would give the same tree; if not, why."""
    if what_if.started.what_if == "exact":
        return (
            "Exact: a run with these settings and this seed gives the same tree, up to the "
            f"rounding of {what_if.started.model.dtype}."
        )
    remedy = f"so this is an approximation; {how_to_run} for the exact tree."
    if not unknowns:
        return f"The source run is itself an approximation, {remedy}"
    counts = Counter(unknown.why for unknown in unknowns)
    reasons = [
        words.format(f"{counted(counts[why], thing)} (◇)")
        for why, (thing, words) in _REASONS.items()
        if counts[why]
    ]
    sentence = f"{listed(reasons)}, {remedy}"
    return sentence[0].upper() + sentence[1:]


def rows_sentence(recorded: Iterable[Event], what_if: Iterable[Event]) -> str:
    """What the cache allocates and copies with this r and with the recorded r."""
    recorded = list(recorded)
    if not fold(recorded).started.model.shares_rows:
        return "The model keeps its memory in its own way, so r changes nothing."
    return f"{_rows_words(what_if)} As recorded: {_rows_words(recorded)}"


def marks(what_if: RunState, unknowns: Iterable[Unknown]) -> list[list[Any]]:
    """For the board: [path, token index, words] of each unknown place."""
    return [[*_token_at(what_if, unknown), _MARKS[unknown.why]] for unknown in unknowns]


def _token_at(run: RunState, unknown: Unknown) -> tuple[int, int]:
    """Path and index of the token at this step, else of the first child's first or its own last."""
    path = run.paths[unknown.path]
    index = next(
        (index for index, token in enumerate(path.tokens) if token.step == unknown.step), None
    )
    if index is not None:
        return path.id, index
    return (path.children[0], 0) if path.children else (path.id, len(path.tokens) - 1)


def _tree(run: RunState) -> list[tuple[str, list[int]]]:
    return [(path.status, [token.id for token in path.tokens]) for path in run.paths]


def _size(run: RunState) -> str:
    forks = len(run.forks())
    return f"{counted(forks, 'fork')}, {counted(len(run.leaves()), 'path')}"


def _rows_words(events: Iterable[Event]) -> str:
    events = list(events)
    run = fold(events)
    config, row = run.started.config, run.started.model.row_bytes
    growths = [event.growth for event in events if isinstance(event, RowsAllocated)]
    kv = [step.kv for step in run.steps if step.kv is not None]
    name = f"r = {config.r}" if config.cache == "tree" else f"cache {config.cache}"
    copied = sum(growth.rows_copied for growth in growths)
    spare = max((usage.rows_spare for usage in kv), default=0)
    held = max((usage.bytes_held for usage in kv), default=0)
    return (
        f"{name} allocates {counted(len(growths), 'time')}, copies {counted(copied, 'row')} "
        f"({human_bytes(copied * row)}), has at most {counted(spare, 'spare row')} and holds at "
        f"most {human_bytes(held)} ({source(run)})."
    )
