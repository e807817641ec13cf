"""What a KV cache saves: the same run with each cache. All measured."""

from itertools import accumulate
from operator import attrgetter
from typing import Final

from eab.formatting import counted, human_bytes, listed, times, with_ratio
from eab.labs.measurement import Chart, Lab, Measure, Report, TextTable, measures_table
from eab.labs.variants import (
    UNITS,
    costs_of,
)
from eab.run import RunState
from eab.timing import (
    MILLI,
    NO_DIFFERENCE,
    NOTHING_YET,
    Timing,
    are_too_few,
    differs,
    in_ms,
    ms,
    ratio_words,
    repeats_words,
)

_COUNT: Final = "{:,.0f}".format
_MEASURES: Final = (
    Measure("seconds", attrgetter("seconds"), "{:.2f}".format, True),
    Measure("ms to the first token", attrgetter("first_step_seconds"), ms, True),
    Measure("ms per step", attrgetter("step_seconds"), ms, True),
    Measure("tokens through the model", attrgetter("tokens_through_model"), _COUNT),
    Measure("prompt tokens reused", attrgetter("tokens_reused"), _COUNT),
    Measure("peak bytes", attrgetter("peak_bytes"), human_bytes),
    Measure("most bytes held", attrgetter("most_held_bytes"), human_bytes),
    Measure("bytes held at the end", attrgetter("held_last_bytes"), human_bytes),
    Measure("of these in the prefix cache", attrgetter("reused_bytes"), human_bytes),
    Measure("bytes copied", attrgetter("copied_bytes"), human_bytes),
    Measure("allocations", attrgetter("allocations"), _COUNT),
)
_NOTE: Final = (
    "All measured. Times are medians over alternating repeats, with quartiles in brackets. Two "
    "times differ if their medians are further apart than the wider of their two interquartile "
    "ranges. The peak includes temporary tensors; bytes held are those between steps. Brackets "
    "after bytes and counts give multiples of the first column."
)
_MIB: Final = 2**20


def caches_answer(report: Report) -> str:
    """How much time a cache saves, and how much memory sharing saves."""
    costs = {cost.variant: cost for cost in costs_of(report)}
    tree, none = costs.get("tree"), costs.get("recompute")
    if tree is None:
        return NOTHING_YET
    time = f"A step with the tree takes {in_ms(tree.step_seconds)}"
    if none is not None and not are_too_few(none.step_seconds, tree.step_seconds):
        time = f"Without a KV cache, a step takes as long as with the tree ({NO_DIFFERENCE})"
        if differs(none.step_seconds, tree.step_seconds):
            longer = ratio_words(none.step_seconds, tree.step_seconds)
            time = f"Without a KV cache, a step takes {longer} as long as with the tree"
    timings = [each.step_seconds for each in (tree, none) if each is not None]
    time = f"{time} ({repeats_words(timings)})."
    copies = costs.get("deep-copy")
    if copies is None:
        return time
    held, alone = tree.most_held_bytes, copies.most_held_bytes
    return (
        f"{time} The tree shares rows between paths and holds at most {human_bytes(held)}; a cache "
        f"for each path holds {with_ratio(alone, held, human_bytes)}."
    )


def time_chart(report: Report) -> Chart:
    """Milliseconds per decode step: one line per cache, with a band between the quartiles."""
    lines = {
        name: report.timings("steps", "step", "seconds", variant=name)
        or {
            step.step: Timing((step.timing.seconds,))
            for step in run.steps
            if step.step and step.timing is not None
        }
        for name, run in report.runs.items()
    }
    return Chart("step", "milliseconds per step, measured", lines, {}, MILLI, "y", bands=True)


def caches_table(report: Report) -> TextTable:
    """A row per measure, with a cell per cache; how each run ended, unless all finished."""
    costs = costs_of(report)
    rows = [*measures_table({cost.variant: cost for cost in costs}, _MEASURES)]
    if not all(cost.ended == "finished" for cost in costs):
        rows.append(("ended", *(cost.ended or "unfinished" for cost in costs)))
    return rows


CACHES_LAB: Final = Lab("caches", UNITS, caches_answer, caches_table, _NOTE, time_chart)


def bytes_answer(report: Report) -> str:
    """How much each cache copies."""
    costs = costs_of(report)
    if not costs:
        return NOTHING_YET
    first, *others = costs
    words = [
        f"{cost.variant} {with_ratio(cost.copied_bytes, first.copied_bytes, human_bytes)}"
        if cost.copied_bytes
        else f"{cost.variant} nothing"
        for cost in others
    ]
    beside = f", {listed(words)}" if words else ""
    copied = human_bytes(first.copied_bytes)
    return f"In the whole run, {first.variant} copies {copied}{beside} (measured)."


def bytes_chart(report: Report) -> Chart:
    """Peak, most held between steps and all bytes copied, by cache."""
    names = {
        "peak": "peak_bytes",
        "most held between steps": "most_held_bytes",
        "copied in all": "copied_bytes",
    }
    points = {
        title: {cost.variant: Timing((getattr(cost, name) / _MIB,)) for cost in costs_of(report)}
        for title, name in names.items()
    }
    return Chart("KV cache", "MiB, measured, without 0", {}, points, log="y")


BYTES: Final = Lab("bytes", UNITS, bytes_answer, chart=bytes_chart)


def paths_sentence(run: RunState) -> str:
    """The share of the paths' bytes that is stored once for several paths."""
    kv = run.peak_kv
    if kv is None or not kv.rows_independent:
        return "The tree has no rows yet."
    step = next(step.step for step in run.steps if step.kv is kv)
    row, shared = run.started.model.row_bytes, sum(path.shared for path in kv.paths)
    used, have = kv.rows_shared + kv.rows_private, "has" if len(kv.paths) == 1 else "have"
    return (
        f"At step {step}, {counted(len(kv.paths), 'path')} {have} "
        f"{human_bytes(kv.rows_independent * row)} in total, {shared / kv.rows_independent:.0%} "
        f"of it shared. With shared rows stored once, {human_bytes(used * row)} are used and "
        f"{human_bytes(kv.rows_spare * row)} more are reserved (counted rows)."
    )


def paths_chart(run: RunState) -> Chart:
    """The paths at the peak of a run: bytes shared with other paths, and private bytes."""
    kib = run.started.model.row_bytes / 1024
    paths = run.peak_kv.paths if run.peak_kv is not None else ()
    points = {
        "shared": {f"path {path.path}": Timing((path.shared * kib,)) for path in paths},
        "private": {f"path {path.path}": Timing((path.private * kib,)) for path in paths},
    }
    return Chart("path", "KiB of its text (counted rows)", {}, points, stacked=True)


_COMPARED: Final = {"tree": "with a KV cache", "recompute": "without"}


def processed_answer(report: Report) -> str:
    """The total tokens through the model, with a cache and without."""
    runs = report.runs
    if any(name not in runs or not runs[name].steps for name in _COMPARED):
        return NOTHING_YET
    with_cache, without = (runs[name].tokens_through_model for name in _COMPARED)
    return (
        f"With a KV cache, {with_cache:,} tokens go through the model; without one, {without:,}, "
        f"or {times(without / with_cache)} as many (measured)."
    )


def processed_chart(report: Report) -> Chart:
    """Tokens through the model up to each step: one line with a cache, one without."""
    lines = {}
    for name, words in _COMPARED.items():
        if (run := report.runs.get(name)) is not None:
            tokens = accumulate(step.timing.tokens if step.timing else 0 for step in run.steps)
            lines[f"{words} ({name})"] = {
                step.step: Timing((total,)) for step, total in zip(run.steps, tokens, strict=True)
            }
    return Chart("step", "tokens through the model so far", lines, log="y", bands=True)


PROCESSED: Final = Lab("processed", {}, processed_answer, chart=processed_chart)
