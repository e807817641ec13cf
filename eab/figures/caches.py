"""Caches side by side: what each held, took and copied, as charts and sentences. All figures are
measured.

A chart of one comparison never changes, so plotly draws them; while runs go on, the page shows a
progress bar only.
"""

from collections.abc import Callable
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from eab.analysis.sweep import Sweep
from eab.figures.charts import laid_out
from eab.formatting import counted, human_bytes, listed
from eab.run import Run, Step

# Readable on white and on dark; dash and pattern tell the caches apart without colour.
COLOURS: Final[dict[str, str]] = {
    "tree": "#1f83c9",
    "concat-cow": "#d9661f",
    "deep-copy": "#13946b",
    "recompute": "#b0609f",
}
DASHES: Final[dict[str, str]] = {
    "tree": "solid",
    "concat-cow": "dash",
    "deep-copy": "dot",
    "recompute": "dashdot",
}
PATTERNS: Final[dict[str, str]] = {
    "tree": "",
    "concat-cow": "/",
    "deep-copy": ".",
    "recompute": "x",
}
_PATTERN: Final = {"fillmode": "overlay", "fgcolor": "white", "size": 6, "solidity": 0.2}
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_ROUND_NUMBERS: Final = [digit * 10.0**power for power in range(-2, 7) for digit in (1, 2, 5)]


def held_figure(sweep: Sweep) -> go.Figure:
    """Bytes held after each step, one line per cache."""
    most = max((cost.most_held_bytes for cost in sweep.costs()), default=0)
    unit, name = _unit(most)
    figure = _lines(
        sweep, lambda step: None if step.kv is None else step.kv.bytes_held / unit, ".2f"
    )
    figure.update_traces(line_shape="hv")  # what is held stays until the next step
    figure.update_yaxes(title=f"KV bytes held ({name}, measured)", rangemode="tozero")
    return figure


def held_sentence(sweep: Sweep) -> str:
    """Which cache holds how much at its largest."""
    return _beside(sweep, "At its largest", "most_held_bytes", "holds", human_bytes)


def time_figure(sweep: Sweep) -> go.Figure:
    """Milliseconds of each decode step, one line per cache, on a logarithmic axis."""
    figure = _lines(
        sweep,
        lambda step: step.timing.seconds * 1000 if step.timing and step.step else None,
        ".1f",
    )
    figure.update_yaxes(
        title="milliseconds per step (measured, log scale)", type="log", tickvals=_ROUND_NUMBERS
    )
    return figure


def time_sentence(sweep: Sweep) -> str:
    """How long a step takes with each cache."""
    return _beside(
        sweep,
        "For a step (median)",
        "step_seconds",
        "takes",
        lambda seconds: f"{seconds * 1000:.1f} ms",
    )


def totals_figure(sweep: Sweep) -> go.Figure:
    """Bars: the worst moment, the most held between steps, and all bytes copied."""
    costs = sweep.costs()
    titles = ("worst moment", "most held", "copied in all")
    figure = make_subplots(
        rows=1, cols=3, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.06
    )
    for column, name in enumerate(("peak_bytes", "most_held_bytes", "copied_bytes"), start=1):
        values = [getattr(cost, name) for cost in costs]
        unit, unit_name = _unit(max(values, default=0))
        figure.add_bar(
            x=[value / unit for value in values],
            y=[cost.variant for cost in costs],
            orientation="h",
            text=[human_bytes(value) for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": [COLOURS[cost.variant] for cost in costs],
                "pattern": _PATTERN | {"shape": [PATTERNS[cost.variant] for cost in costs]},
            },
            hovertemplate="%{y}: %{text}<extra></extra>",
            showlegend=False,
            row=1,
            col=column,
        )
        room = [
            0,
            1.4 * (max(values, default=0) / unit or 1),
        ]  # for the figure beside the longest bar
        figure.update_xaxes(title=f"{unit_name} (measured)", range=room, row=1, col=column)
    figure.update_yaxes(autorange="reversed")
    return laid_out(figure, height=300)


def totals_sentence(sweep: Sweep) -> str:
    """Which cache copies how much."""
    return _beside(sweep, "In the whole run", "copied_bytes", "copies", human_bytes)


def paths_figure(run: Run) -> go.Figure:
    """The tree's paths at its largest step: bytes that each shares with others, and bytes of its
    own.
    """
    kv = run.peak_kv()
    row = run.started.model.row_bytes
    paths = kv.paths if kv is not None else ()
    unit, name = _unit(max((row * (path.shared + path.private) for path in paths), default=0))
    figure = go.Figure()
    parts: tuple[tuple[str, str, str, list[int]], ...] = (
        ("shared", COLOURS["tree"], "", [path.shared for path in paths]),
        ("private", COLOURS["concat-cow"], "/", [path.private for path in paths]),
    )
    for part, colour, pattern, rows in parts:
        figure.add_bar(
            name=part,
            x=[f"path {path.path}" for path in paths],
            y=[count * row / unit for count in rows],
            marker={"color": colour, "pattern": _PATTERN | {"shape": pattern}},
            hovertemplate=f"%{{x}}: %{{y:.2f}} {name} {part}<extra></extra>",
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(title=f"{name} seen (counted rows)", rangemode="tozero")
    return laid_out(figure)


def paths_sentence(run: Run) -> str:
    """How much of what the tree's paths see is stored once for several."""
    kv = run.peak_kv()
    if kv is None or not kv.rows_independent:
        return "The tree has no rows yet."
    step = next(step.step for step in run.steps if step.kv is kv)
    row, shared = run.started.model.row_bytes, sum(path.shared for path in kv.paths)
    used = kv.rows_shared + kv.rows_private
    return (
        f"At step {step}, {counted(len(kv.paths), 'path')} see {human_bytes(kv.rows_independent * row)} in all, "
        f"{shared / kv.rows_independent:.0%} of it shared; stored once, that is {human_bytes(used * row)}, and "
        f"{human_bytes(kv.rows_spare * row)} are spare (counted rows)."
    )


def _lines(sweep: Sweep, value: Callable[[Step], float | None], shown: str) -> go.Figure:
    figure = go.Figure()
    for cache, run in sweep.pairs:
        points = [(step.step, found) for step in run.steps if (found := value(step)) is not None]
        figure.add_scatter(
            name=cache,
            mode="lines",
            x=[step for step, _ in points],
            y=[found for _, found in points],
            line={"color": COLOURS[cache], "dash": DASHES[cache], "width": 2.5},
            hovertemplate=f"{cache}, step %{{x}}: %{{y:{shown}}}<extra></extra>",
        )
    figure.update_xaxes(title="step")
    return laid_out(figure)


def _beside(
    sweep: Sweep,
    when: str,
    name: str,
    verb: str,
    shown: Callable[[Any], str],
    scale: float = 1,
) -> str:
    """Each cache's figure, with its ratio to the first."""
    costs = sweep.costs()
    if not costs:
        return "Nothing measured yet."
    first, *others = (getattr(cost, name) * scale for cost in costs)
    words = [
        f"{cost.variant} {_ratio(value, first, shown)}"
        for cost, value in zip(costs[1:], others, strict=True)
    ]
    beside = f", {listed(words)}" if words else ""
    return f"{when}, {costs[0].variant} {verb} {shown(first)}{beside} (measured)."


def _ratio(value: float, first: float, shown: Callable[[Any], str]) -> str:
    if not value:
        return "nothing"
    return f"{shown(value)} ({value / first:.1f} times)" if first else shown(value)


def _unit(most: float) -> tuple[int, str]:
    """The unit in which an axis up to so many bytes reads well."""
    if most < _MIB:
        return _KIB, "KiB"
    return (_MIB, "MiB") if most < _GIB else (_GIB, "GiB")
