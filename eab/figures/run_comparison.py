"""Two runs side by side: sentences about their common tree, and a table of their costs. Also about
a run and its what-if, with marks where the engine might decide otherwise.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from eab.analysis.answers import group_answers
from eab.analysis.run_comparison import Merged, same_prompt, texts_of
from eab.engine.what_if import Unknown, Why
from eab.figures.kv_memory import separate_bytes, source
from eab.formatting import counted, human_bytes, listed, times
from eab.run import RunState, fold, mean_entropy_of
from eab.run.events import Event, RowsAllocated

NOTE: Final = (
    "Seconds, tokens and bytes are measured; for a what-if run they are computed, without times. "
    "Separate caches and the probability seen are computed. Do not compare seconds of runs from "
    "different days or machines."
)
_NO_VALUE: Final = "–"
_SAME: Final = "the same"
_POLICIES: Final = {
    "fair": "entropy-adaptive branching",
    "original": "branching by the published rule",
    "beam": "beam search",
    "best-first": "best-first search",
    "greedy": "greedy decoding",
    "independent": "ordinary sampling",
}
_LITTLE: Final = 0.01  # probability seen


def _probability(share: float) -> str:
    if 0 < share < 0.0001:
        return "less than 0.01%"
    return f"{share:.{1 if share >= _LITTLE else 2}%}"


_COUNT: Final = "{:,}".format
_MEASURES: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("probability seen", "explored", _probability),  # of the distinct texts, 0 to 1
    ("texts", "texts", _COUNT),
    ("different texts", "distinct", _COUNT),
    ("different first sentences", "answers", _COUNT),
    ("forks", "forks", _COUNT),  # 0 under the policy `independent`
    ("tokens through the model", "tokens", _COUNT),
    ("prompt tokens reused", "reused", _COUNT),
    ("seconds", "seconds", "{:.2f}".format),  # of all steps; None for a what-if run
    ("most KV bytes held", "held", human_bytes),  # between steps
    ("peak KV bytes", "peak", human_bytes),
    # with one cache per path, at the step with the most rows
    ("KV bytes with separate caches", "separate_caches", human_bytes),
)


def measures_of(run: RunState) -> dict[str, Any]:
    """What the run cost and what it produced, by the names in `_MEASURES`."""
    kv, last = run.peak_kv, run.last_kv
    independent = run.started.config.policy == "independent"
    return {
        "explored": group_answers(run).explored,
        "texts": len(run.leaves()),
        "distinct": len(set(texts_of(run))),
        "answers": len(group_answers(run, "sentence").ranked),
        "forks": 0 if independent else len(run.forks()),
        "tokens": run.tokens_through_model,
        "reused": run.tokens_reused,
        "seconds": run.seconds,
        "held": max((step.kv.bytes_held for step in run.steps if step.kv is not None), default=0),
        "peak": last.peak_bytes if last is not None else 0,
        "separate_caches": separate_bytes(run.started, kv) if kv is not None else 0,
    }


def diff_rows(a: RunState, b: RunState) -> list[tuple[str, str, str, str]]:
    """Each measure of both runs as text, and how the second run differs from the first."""
    of_a, of_b = measures_of(a), measures_of(b)
    return [
        (
            measure,
            _cell(of_a[name], written),
            _cell(of_b[name], written),
            _points(of_b[name] - of_a[name])
            if written is _probability
            else _difference(of_a[name], of_b[name], written),
        )
        for measure, name, written in _MEASURES
    ]


def diff_table(a: RunState, b: RunState) -> pd.DataFrame:
    """All measures of both runs as numbers, in columns `measure`, `a`, `b`; shares are 0 to 1."""
    of_a, of_b = measures_of(a), measures_of(b)
    return pd.DataFrame([{"measure": name, "a": of_a[name], "b": of_b[name]} for name in of_a])


def diff_tree_sentence(both: Merged) -> str:
    """How many tokens of the common tree are in both runs, and how many in only one."""
    tokens = {
        side: sum(
            len(path.tokens)
            for path, own in zip(both.run.paths, both.sides, strict=True)
            if own == side
        )
        for side in ("both", "a", "b")
    }
    return (
        f"{counted(tokens['both'], 'token')} in both, drawn once; {tokens['a']:,} only in A, "
        f"{tokens['b']:,} only in B."
    )


def diff_entropy_sentence(a: RunState, b: RunState) -> str:
    """How many tokens each run chose, and at what mean entropy."""
    words = []
    for name, run in (("A", a), ("B", b)):
        tokens = [token for path in run.paths for token in path.tokens]
        mean = mean_entropy_of(tokens)
        at = "" if mean is None else f" at a mean entropy of {mean:.2f} nats"
        words.append(f"{name} chose {counted(len(tokens), 'token')}{at}")
    return f"{words[0]}, {words[1]}."


def takeaway_sentence(a: RunState, b: RunState) -> str:
    """How much of all probability each run saw, and at the cost of how many tokens."""
    if not same_prompt(a, b):
        return (
            "The runs have different prompts or models: compare their costs, and how likely a word "
            "is in each."
        )
    of_a, of_b = measures_of(a), measures_of(b)
    note = (
        " Every long text is improbable, so a few texts cover little of all probability."
        if max(of_a["explored"], of_b["explored"]) < _LITTLE
        else ""
    )
    return f"{_seen(a, of_a, 'A')} {_seen(b, of_b, 'B')}{note}"


def _seen(run: RunState, measures: Mapping[str, Any], name: str) -> str:
    if run.started.imported:
        return f"{name}, imported samples, has {counted(measures['distinct'], 'different text')}."
    policy = run.started.config.policy
    words = _POLICIES.get(policy, f"the policy {policy}")
    return (
        f"{name}, {words}, saw {_probability(measures['explored'])} of "
        f"all probability: {counted(measures['distinct'], 'different text')} for "
        f"{counted(measures['tokens'], 'token')} through the model."
    )


def _cell(value: float | None, written: Callable[[Any], str]) -> str:
    return _NO_VALUE if value is None else written(value)


def _points(difference: float) -> str:
    """'49.3 points less': a difference of two shares in percentage points."""
    if not difference:
        return _SAME
    word, size = "more" if difference > 0 else "less", abs(100 * difference)
    return f"{size:.1f} points {word}" if size >= 0.1 else f"under 0.1 points {word}"


def _difference(a: float | None, b: float | None, written: Callable[[Any], str]) -> str:
    """'1.0 MiB more (2×)', '7 fewer': B minus A, and B as a multiple of A where neither is 0."""
    if a is None or b is None:
        return _NO_VALUE
    size = written(abs(b - a))
    if a == b or size == written(0):
        return _SAME if written(a) == written(b) else "about the same"
    word = "more" if b > a else "fewer" if written is _COUNT else "less"
    ratio = f" ({times(b / a)})" if a and b else ""
    return f"{size} {word}{ratio}"


# Listed in this order; eab.engine.what_if.Unknown explains each reason.
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


def exactness_sentence(what_if: RunState, unknowns: Sequence[Unknown]) -> str:
    """Whether running the model would give the same tree; if not, why."""
    if what_if.started.what_if == "exact":
        return (
            "Exact: a run with these settings and this seed gives the same tree, up to the "
            f"rounding of {what_if.started.model.dtype}."
        )
    remedy = "so this is an approximation; run the model for the exact tree."
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
    """[path, token index, words] of each unknown place."""
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
