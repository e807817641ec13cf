"""Timed decode steps of the engine: several models in turn, at several numbers of rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from published import markdown_table
from rich.console import Console

from eab.caches.timing import prefilled_tree, time_step
from eab.formatting import counted
from eab.models.huggingface import HuggingFaceModel
from eab.timing import Clock, Measure, Timing, comparison, fastest, take_turns, timed
from eab.weight_formats import LAYOUTS

PROMPT = 300  # tokens before the step
PAUSE = 0.05  # seconds
MIB = 2**20
console = Console(stderr=True)

Steps: TypeAlias = Mapping[str, Mapping[int, Timing]]  # by format and rows
StepOfPeer: TypeAlias = Callable[[int], float]  # rows -> seconds of one step


def time_steps(
    models: Mapping[str, HuggingFaceModel],
    all_rows: Sequence[int],
    repeats: int,
    clock: Clock,
    peers: Mapping[str, StepOfPeer],
) -> Steps:
    """Time decode steps, after a warm-up. At each number of rows, models and peers take turns."""
    found: dict[str, dict[int, Timing]] = {name: {} for name in (*models, *peers)}
    for rows in all_rows:
        console.print(f"{rows} rows, {repeats} rounds ...")
        measures = {name: _step(model, rows, repeats, clock) for name, model in models.items()}
        measures |= {name: partial(step, rows) for name, step in peers.items()}
        measures = {name: _second_of_two(measure) for name, measure in measures.items()}
        for name, timing in take_turns(measures, repeats).items():
            found[name][rows] = timing
    return found


def _second_of_two(measure: Measure) -> Measure:
    """Measures a step after another one, as in a run, and after a pause: idle threads of OpenMP and
    of llama.cpp wait actively for a while, and would take the processor from another process.
    """

    def measured() -> float:
        time.sleep(PAUSE)
        measure()
        return measure()

    return measured


def steps_of(repeats: int) -> int:
    """How many steps `time_steps` makes: two in each round, and in one for warm-up."""
    return 2 * (repeats + 1)


def _step(model: HuggingFaceModel, paths: int, repeats: int, clock: Clock) -> Measure:
    """Times a decode step. The cache has room for all rounds, so no growth is timed."""
    steps = steps_of(repeats)
    cache = prefilled_tree(model.kv_shape, PROMPT, steps, padded=False, paths=paths, steps=steps)

    def step() -> None:
        time_step(lambda batch: model.forward([batch]), cache, range(1, paths + 1))

    return timed(step, clock)


def steps_table(steps: Steps, weighed: str, held: Mapping[str, int]) -> str:
    """A Markdown table: milliseconds with quartiles, and the speed against weights as loaded."""
    all_rows = [*next(iter(steps.values()))]
    words = (
        f"One decode step after {PROMPT} tokens: milliseconds (quartiles), and how fast against "
        "the fastest layout of the weights as loaded."
    )
    lines = []
    for name, by_rows in steps.items():
        cells = [_cell(by_rows[rows], loaded_step(steps, rows)) for rows in all_rows]
        size = f"{held[name] / MIB:,.0f} MiB" if name in held else "-"
        lines.append([name, *cells, size])
    heads = ["weights", *(counted(rows, "row") for rows in all_rows), weighed]
    return f"{words}\n\n{markdown_table(heads, lines)}"


def is_as_loaded(name: str) -> bool:
    """Whether the name is a layout of the weights as loaded, such as `float32, plain`."""
    return name.partition(", ")[2] in LAYOUTS


def loaded_step(steps: Steps, rows: int) -> Timing:
    """The step time of the layout that is fastest at this number of rows."""
    layouts = {name: by_rows[rows] for name, by_rows in steps.items() if is_as_loaded(name)}
    return layouts[fastest(layouts)]


def _cell(timing: Timing, base: Timing) -> str:
    text = f"{timing.median * 1000:.0f} ({timing.low * 1000:.0f}-{timing.high * 1000:.0f})"
    return f"{text}, fastest" if timing is base else f"{text}: {comparison(timing, base)}"
