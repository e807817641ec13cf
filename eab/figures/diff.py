"""Two runs beside each other: one tree for the board, a table of costs, and what it comes to in a
sentence.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pandas as pd

from eab.analysis.answers import group_answers
from eab.analysis.diff import Merged, same_prompt, texts_of
from eab.analysis.sweep import run_cost
from eab.formatting import counted, human_bytes
from eab.run import Run

NOTE: Final = (
    "Seconds, tokens and bytes are measured (of a re-read run: computed, without times); a cache per text and the "
    "probability seen are computed. Seconds of runs made on different days or machines do not compare."
)


class Figures(NamedTuple):
    """One run in numbers; None where there is none (a re-read run has no times)."""

    tokens: int
    seconds: float | None
    held: int
    peak: int
    without_sharing: int
    texts: int
    distinct: int
    forks: int
    explored: float


class Line(NamedTuple):
    """One measure of both runs, readable, and how the second differs."""

    measure: str
    a: str
    b: str
    difference: str


def _probability(share: float) -> str:
    return f"{share:.2%}" if share >= 0.0001 or not share else f"{share:.1e}"


_MEASURES: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("tokens through the model", "tokens", "{:,}".format),
    ("seconds", "seconds", "{:.2f}".format),
    ("most KV bytes held", "held", human_bytes),
    ("KV bytes at the worst moment", "peak", human_bytes),
    ("KV bytes with a cache per text", "without_sharing", human_bytes),
    ("texts", "texts", "{:,}".format),
    ("distinct texts", "distinct", "{:,}".format),
    ("forks", "forks", "{:,}".format),
    ("probability seen", "explored", _probability),
)


def figures_of(run: Run) -> Figures:
    """What the run took and what came of it."""
    cost, kv = run_cost(run.started.config.cache, run), run.peak_kv()
    independent = run.started.config.policy == "independent"
    return Figures(
        tokens=cost.tokens_through_model,
        seconds=run.seconds(),
        held=cost.most_held_bytes,
        peak=cost.peak_bytes,
        without_sharing=kv.rows_independent * run.started.model.row_bytes if kv is not None else 0,
        texts=len(run.leaves()),
        distinct=len(set(texts_of(run))),
        forks=0 if independent else sum(path.status == "forked" for path in run.paths),
        explored=group_answers(run).explored,
    )


def cost_lines(a: Run, b: Run) -> list[Line]:
    """All measures of both runs."""
    ours, theirs = figures_of(a)._asdict(), figures_of(b)._asdict()
    return [
        Line(
            measure,
            _cell(ours[name], shown),
            _cell(theirs[name], shown),
            _difference(ours[name], theirs[name], shown),
        )
        for measure, name, shown in _MEASURES
    ]


def cost_table(a: Run, b: Run) -> pd.DataFrame:
    """The same as numbers: one line per measure, columns `measure`, `a`, `b`; bytes, seconds,
    counts, shares.
    """
    ours, theirs = figures_of(a)._asdict(), figures_of(b)._asdict()
    return pd.DataFrame(
        [{"measure": name, "a": ours[name], "b": theirs[name]} for _, name, _ in _MEASURES]
    )


def tree_sentence(both: Merged) -> str:
    """How much of the tree is whose."""
    tokens = {
        side: sum(
            len(path.tokens)
            for path, own in zip(both.run.paths, both.sides, strict=True)
            if own == side
        )
        for side in ("both", "a", "b")
    }
    return f"{counted(tokens['both'], 'token')} in both, drawn once; {tokens['a']:,} in A alone, {tokens['b']:,} in B."


def entropy_sentence(a: Run, b: Run) -> str:
    """Where each run looked."""
    words = []
    for name, run in (("A", a), ("B", b)):
        entropies = [token.entropy for path in run.paths for token in path.tokens]
        mean = sum(entropies) / max(1, len(entropies))
        words.append(
            f"{name} chose {counted(len(entropies), 'token')} at {mean:.2f} nats on average"
        )
    return f"{words[0]}, {words[1]}."


def takeaway_sentence(a: Run, b: Run) -> str:
    """What the comparison comes to."""
    ours, theirs = figures_of(a), figures_of(b)
    if not same_prompt(a, b):
        return "The runs continue different prompts, or with different models: their costs compare, their texts do not."
    return (
        f"With {ours.tokens:,} tokens through the model, A found {counted(ours.distinct, 'distinct text')}, which hold "
        f"{_probability(ours.explored)} of all probability; with {theirs.tokens:,}, B found "
        f"{counted(theirs.distinct, 'distinct text')}, which hold {_probability(theirs.explored)}."
    )


def _cell(value: float | None, shown: Callable[[Any], str]) -> str:
    return "–" if value is None else shown(value)


def _difference(a: float | None, b: float | None, shown: Callable[[Any], str]) -> str:
    if a is None or b is None:
        return "–"
    sign = "+" if b > a else "−" if b < a else "±"
    times = f" ({b / a:.3g}×)" if a and b != a else ""
    return f"{sign}{shown(abs(b - a))}{times}"
