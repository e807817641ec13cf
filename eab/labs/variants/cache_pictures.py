"""Charts and sentences that compare KV caches: bytes held, time, bytes copied. All measured."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from eab.figures.charts import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    bar_pattern,
    byte_unit,
    from_zero,
    laid_out,
    log_axis,
)
from eab.figures.drawing import go, make_subplots
from eab.figures.timings import MILLI, in_ms, ratio_words, repeats_words
from eab.formatting import counted, human_bytes, listed, times, with_ratio
from eab.labs.variants.costs import step_words
from eab.labs.variants.results import PROMPT_REUSED, VariantRuns
from eab.run import RunState, Step
from eab.timing import NO_DIFFERENCE, NOTHING_YET, Timing, are_too_few, differs, timings_by


class CacheStyle(NamedTuple):
    """How a cache is drawn: lines by colour and dash, bars by colour and pattern."""

    colour: str
    dash: str
    pattern: str


STYLES: Final[dict[str, CacheStyle]] = {
    "tree": CacheStyle(BLUE, "solid", ""),
    "paged": CacheStyle(GREY, "longdashdot", "-"),
    "concat-cow": CacheStyle(ORANGE, "dash", "/"),
    "deep-copy": CacheStyle(GREEN, "dot", "."),
    "recompute": CacheStyle(PURPLE, "dashdot", "x"),
    PROMPT_REUSED: CacheStyle(GOLD, "longdash", "|"),
}


def held_figure(compared: VariantRuns) -> go.Figure:
    """Bytes held after each step, one line per cache."""
    most = max((cost.most_held_bytes for cost in compared.costs()), default=0)
    unit, name = byte_unit(most)
    figure = _lines(
        compared, lambda step: None if step.kv is None else step.kv.bytes_held / unit, ".2f"
    )
    figure.update_traces(line_shape="hv")  # bytes held stay until the next step
    figure.update_yaxes(title=f"KV bytes held ({name}, measured)", rangemode="tozero")
    return figure


def held_sentence(compared: VariantRuns) -> str:
    """The most bytes that each cache holds between steps."""
    return _side_by_side(compared, "At its largest", "most_held_bytes", "holds", human_bytes)


def time_figure(compared: VariantRuns) -> go.Figure:
    """Milliseconds per decode step: one line per cache, with a band between the quartiles."""
    figure = go.Figure()
    for cache, _ in compared.pairs:
        steps = _step_timings(compared, cache)
        if any(len(timing.seconds) > 1 for timing in steps.values()):
            _add_band(figure, cache, steps)
        points = [(step, MILLI * timing.median) for step, timing in steps.items()]
        _add_line(figure, cache, points, ".1f")
    return laid_out(figure, x="step", y=log_axis("milliseconds per step, measured"))


def _step_timings(compared: VariantRuns, cache: str) -> dict[int, Timing]:
    return timings_by(
        (step, seconds)
        for timed in compared.times(cache)
        for step, seconds in enumerate(timed.step_seconds)
        if step and seconds is not None
    )


def _add_band(figure: go.Figure, cache: str, steps: Mapping[int, Timing]) -> None:
    there = list(steps)
    back = there[::-1]
    figure.add_scatter(
        x=there + back,
        y=[MILLI * steps[step].high for step in there] + [MILLI * steps[step].low for step in back],
        fill="toself",
        fillcolor=STYLES[cache].colour,
        opacity=0.25,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=cache,
    )


def answer_sentence(compared: VariantRuns) -> str:
    """How much time a cache saves, and how much memory sharing saves."""
    costs = {cost.variant: cost for cost in compared.costs()}
    if not {"tree", "recompute", "deep-copy"} <= costs.keys():
        return time_sentence(compared)
    tree, none, copies = costs["tree"], costs["recompute"], costs["deep-copy"]
    if are_too_few(none.step_seconds, tree.step_seconds):
        time = f"A step with the tree takes {in_ms(tree.step_seconds)}."
    elif differs(none.step_seconds, tree.step_seconds):
        longer = ratio_words(none.step_seconds, tree.step_seconds)
        time = f"Without a KV cache, a step takes {longer} as long as with the tree."
    else:
        time = f"Without a KV cache, a step takes as long as with the tree ({NO_DIFFERENCE})."
    held, alone = tree.most_held_bytes, copies.most_held_bytes
    repeats = repeats_words([tree.step_seconds, none.step_seconds])
    return (
        f"{time} The tree shares rows between paths and holds at most {human_bytes(held)}; a cache "
        f"for each path holds {with_ratio(alone, held, human_bytes)} ({repeats})."
    )


def time_sentence(compared: VariantRuns) -> str:
    """The time of a step with each cache."""
    costs = compared.costs()
    if not costs:
        return NOTHING_YET
    first = costs[0]
    beside = f"; {step_words(costs)}" if len(costs) > 1 else ""
    return f"A step with {first.variant} takes {in_ms(first.step_seconds)}{beside}."


def totals_figure(compared: VariantRuns) -> go.Figure:
    """Bar charts, one below the other: peak, most held between steps, all bytes copied."""
    costs = compared.costs()
    titles = ("peak", "most held between steps", "copied in all")
    figure = make_subplots(rows=3, cols=1, subplot_titles=titles, vertical_spacing=0.2)
    styles = [STYLES[cost.variant] for cost in costs]
    for place, name in enumerate(("peak_bytes", "most_held_bytes", "copied_bytes"), start=1):
        values = [getattr(cost, name) for cost in costs]
        unit, unit_name = byte_unit(max(values, default=0))
        figure.add_bar(
            x=[value / unit for value in values],
            y=[cost.variant for cost in costs],
            orientation="h",
            text=[human_bytes(value) for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": [style.colour for style in styles],
                "pattern": bar_pattern([style.pattern for style in styles]),
            },
            hovertemplate="%{y}: %{text}<extra></extra>",
            showlegend=False,
            row=place,
            col=1,
        )
        longest = max(values, default=0) / unit or 1
        room = [0, 1.4 * longest]  # room for the text beyond the longest bar
        figure.update_xaxes(title=f"{unit_name} (measured)", range=room, row=place, col=1)
    figure.update_yaxes(autorange="reversed")
    return laid_out(figure, height=600)


def totals_sentence(compared: VariantRuns) -> str:
    """How much each cache copies."""
    return _side_by_side(compared, "In the whole run", "copied_bytes", "copies", human_bytes)


def paths_figure(run: RunState) -> go.Figure:
    """The paths at the peak of a run: bytes shared with other paths, and private bytes."""
    kv = run.peak_kv
    row = run.started.model.row_bytes
    paths = kv.paths if kv is not None else ()
    unit, name = byte_unit(max((row * (path.shared + path.private) for path in paths), default=0))
    figure = go.Figure()
    parts = (
        ("shared", STYLES["tree"], [path.shared for path in paths]),
        ("private", STYLES["concat-cow"], [path.private for path in paths]),
    )
    for part, style, rows in parts:
        figure.add_bar(
            name=part,
            x=[f"path {path.path}" for path in paths],
            y=[count * row / unit for count in rows],
            marker={"color": style.colour, "pattern": bar_pattern(style.pattern)},
            hovertemplate=f"%{{x}}: %{{y:.2f}} {name} {part}<extra></extra>",
        )
    figure.update_layout(barmode="stack")
    return laid_out(figure, y=from_zero(f"{name} of its text (counted rows)"))


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
        f"{_states_words(run)}"
    )


def _states_words(run: RunState) -> str:
    states = run.started.model.state_bytes
    return f" Each path also has {human_bytes(states)} of states." if states else ""


def _lines(
    compared: VariantRuns, value: Callable[[Step], float | None], number_format: str
) -> go.Figure:
    figure = go.Figure()
    for cache, run in compared.pairs:
        points = [(step.step, y) for step in run.steps if (y := value(step)) is not None]
        _add_line(figure, cache, points, number_format)
    return laid_out(figure, x="step")


def _add_line(
    figure: go.Figure, cache: str, points: Sequence[tuple[int, float]], number_format: str
) -> None:
    style = STYLES[cache]
    figure.add_scatter(
        name=cache,
        mode="lines",
        x=[step for step, _ in points],
        y=[y for _, y in points],
        line={"color": style.colour, "dash": style.dash, "width": 2.5},
        hovertemplate=f"{cache}, step %{{x}}: %{{y:{number_format}}}<extra></extra>",
        legendgroup=cache,
    )


def _side_by_side(
    compared: VariantRuns, when: str, name: str, verb: str, written: Callable[[Any], str]
) -> str:
    costs = compared.costs()
    if not costs:
        return NOTHING_YET
    first, *others = (getattr(cost, name) for cost in costs)
    words = [
        f"{cost.variant} {with_ratio(value, first, written) if value else 'nothing'}"
        for cost, value in zip(costs[1:], others, strict=True)
    ]
    beside = f", {listed(words)}" if words else ""
    return f"{when}, {costs[0].variant} {verb} {written(first)}{beside} (measured)."


_COMPARED: Final = {"tree": "with a KV cache", "recompute": "without"}


def processed_figure(compared: VariantRuns) -> go.Figure:
    """Tokens through the model up to each step: one line with a cache, one without."""
    figure = go.Figure()
    for name, words in _COMPARED.items():
        run = dict(compared.pairs).get(name)
        if run is None:
            continue
        style = STYLES[name]
        figure.add_scatter(
            name=f"{words} ({name})",
            x=[step.step for step in run.steps],
            y=processed(run),
            mode="lines",
            line={"color": style.colour, "dash": style.dash, "width": 2.5},
            hovertemplate=f"{words}, step %{{x}}: %{{y:,}} tokens<extra></extra>",
        )
    return laid_out(figure, x="step", y=log_axis("tokens through the model so far"))


def processed_sentence(compared: VariantRuns) -> str:
    """The total tokens through the model, with a cache and without."""
    runs = dict(compared.pairs)
    if any(name not in runs or not runs[name].steps for name in _COMPARED):
        return NOTHING_YET
    with_cache, without = (runs[name].tokens_through_model for name in _COMPARED)
    return (
        f"With a KV cache, {with_cache:,} tokens go through the model; without one, {without:,}, "
        f"or {times(without / with_cache)} as many (measured)."
    )


def processed(run: RunState) -> list[int]:
    """Tokens through the model up to each step, including the prompt."""
    return [*accumulate(step.timing.tokens if step.timing else 0 for step in run.steps)]
