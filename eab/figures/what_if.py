"""What a re-read run comes to, and where the engine might make another: sentences, and marks for
the board.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from eab.events import Event, RowsAllocated
from eab.figures.captions import source
from eab.formatting import counted, human_bytes, listed
from eab.run import Run, fold
from eab.what_if.trace import Unknown, Why

# In the order in which they are told; what each means: eab.what_if.trace.Doubt.
_REASONS: Final[dict[Why, str]] = {
    "fork": "at {} it would fork, which the recorded run did not",
    "limit": "at {} the path limit took a part of the children",
    "heir": "at {} another token may come, because the path limit acted",
    "dropped": "at {} the path limit ended a path that would live on",
    "ended": "at {} it would go on after the end of the recorded run",
}
_MARKS: Final[dict[Why, str]] = {
    "fork": "Would fork here: needs a run.",
    "limit": "The path limit took a part of the children here: needs a run.",
    "heir": "Perhaps another token would come here: needs a run.",
    "dropped": "The path limit ended this path in the recorded run; how it goes on needs a run.",
    "ended": "The recorded run ended here.",
}


def tree_change_sentence(recorded: Run, again: Run) -> str:
    """How the tree changed with the threshold."""
    before, after = recorded.started.threshold_nats, again.started.threshold_nats
    if before == after:
        return f"Threshold {before:.2f} nats, as recorded: {_size(again)}."
    return f"At {after:.2f} nats: {_size(again)}; recorded at {before:.2f} nats: {_size(recorded)}."


def exactness_sentence(again: Run, unknowns: Sequence[Unknown]) -> str:
    """Whether a run with the model would make the same, and if it may not, why."""
    if again.started.what_if == "exact":
        return (
            "Exact: a run with these settings and this seed makes the same tree, but for the rounding of "
            f"{again.started.model.dtype}."
        )
    if not unknowns:
        return "Not exact: it was read from a run that was not exact itself."
    counts = Counter(doubt.why for doubt in unknowns)
    reasons = [
        reason.format(counted(counts[why], "place"))
        for why, reason in _REASONS.items()
        if counts[why]
    ]
    return f"Not exact, a run would tell: {listed(reasons)} (marked ◇)."


def rows_sentence(recorded: Iterable[Event], again: Iterable[Event]) -> str:
    """What the cache's growth costs with this r, beside the recorded one."""
    return f"{_rows_words(again)} As recorded: {_rows_words(recorded)}"


def marks(again: Run, unknowns: Iterable[Unknown]) -> list[list[Any]]:
    """[path, number of its token, words] of each doubtful place, for the board."""
    return [[*_token_at(again, doubt), _MARKS[doubt.why]] for doubt in unknowns]


def _token_at(run: Run, doubt: Unknown) -> tuple[int, int]:
    """The token that was chosen there: the path's own, or the first of its first child, or the last
    before its end.
    """
    path = run.paths[doubt.path]
    number = next(
        (number for number, token in enumerate(path.tokens) if token.step == doubt.step), None
    )
    if number is not None:
        return path.id, number
    return (path.children[0], 0) if path.children else (path.id, len(path.tokens) - 1)


def _size(run: Run) -> str:
    forks = sum(path.status == "forked" for path in run.paths)
    return f"{counted(forks, 'fork')}, {counted(len(run.leaves()), 'path')}"


def _rows_words(events: Iterable[Event]) -> str:
    events = list(events)
    run = fold(events)
    config, row = run.started.config, run.started.model.row_bytes
    growths = [event.growth for event in events if isinstance(event, RowsAllocated)]
    kv = [step.kv for step in run.steps if step.kv is not None]
    name = f"r = {config.r}" if config.cache == "tree" else f"cache {config.cache}"
    copied = sum(growth.rows_copied for growth in growths)
    spare = max((one.rows_spare for one in kv), default=0)
    held = max((one.bytes_held for one in kv), default=0)
    return (
        f"{name} allocates {counted(len(growths), 'time')}, copies {copied:,} rows ({human_bytes(copied * row)}), has "
        f"at most {spare:,} rows spare and holds at most {human_bytes(held)} ({source(run)})."
    )
