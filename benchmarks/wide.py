"""Wide and long runs: whether steps cost only what their rows cost as paths end and tensors grow.

    python benchmarks/wide.py [--quick] [--json FILE] [--table FILE]

The runs are independent samples by the embedded model after a short prompt, so sharing saves
little. Alternatives take turns. Figures are medians with quartiles over rounds or their steps.

- tree_over_deep_copy_64_480, _256_480: a run of 64 or 256 texts of up to 480 tokens with the tree
  cache, over the same run with a separate cache for each path.
- step_over_reading_rows_while_ending_64: a whole step of the run with 64 texts, over reading the K
  and V of its rows in use once, at the speed at which PyTorch sums as many numbers. It covers the
  steps in which some texts have ended, but at most a quarter.
- linear_layers_over_reading_rows_while_ending_64: the linear layers of such a step alone, with as few
  texts as any of these steps has, over the same.
- held_over_used_rows_after_half_ended: the bytes of the tensors over those of the rows in use. It
  covers the steps in which at least half of the texts have ended and at least 512 rows are in use,
  because tensors do not shrink by fewer rows.
- last_path_over_alone: a step with one path left, over a step of a run that consists of this path
  only, at the same length.
- grow_share_4_paths_4096: the share of time that the growth of the tensors takes in a run of 4
  paths of 4,096 tokens, far beyond the context of the model.

`--quick` makes fewer rounds; `--only` runs one part.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from unittest.mock import patch

import torch
from published import (
    clock_of,
    command_line,
    markdown_table,
    offer_processor_time,
    publish,
    where,
)
from torch import nn

from eab.caches.tree import TreeCache
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.events import Event, Growth, KvMeasured, StepTimed
from eab.figures.timings import with_spread
from eab.models.loading import load_model
from eab.models.transformers_model import TransformersModel
from eab.models.weight_layouts import ReorderedLinear
from eab.run import fold
from eab.timing import Clock, Timing, take_turns, timed

PROMPT: Final = "Once upon a time"
# With this seed, the last of 64 texts goes on alone for a while.
WIDE: Final = BranchingConfig(policy="independent", max_new_tokens=480, seed=1)
LONG: Final = BranchingConfig(policy="independent", max_paths=4, max_new_tokens=4096)
# Rounds by number of texts: in full, and with --quick
ROUNDS: Final = {64: (7, 3), 256: (3, 1)}
FEWEST_ROWS: Final = 512
FEWEST_ENDING: Final = 48  # of 64 texts
LAST_STEPS: Final = 64

Result = tuple[list[tuple[str, str]], dict[str, Timing], dict[str, float]]


@dataclass(frozen=True)
class Step:
    """One forward pass together with its decisions."""

    paths: int  # live paths before the step
    rows_used: int
    bytes_held: int
    seconds: float


@dataclass
class Watched:
    """A run that is made repeatedly, with a record of its steps."""

    model: TransformersModel
    request: Request
    clock: Clock
    events: list[Event] = field(default_factory=list)  # of the latest round
    rounds: list[list[Step]] = field(default_factory=list)  # without the prefill

    def make(self) -> None:
        self.events, steps, usage, start = [], [], None, self.clock()
        for event in event_stream(self.model, self.request):
            self.events.append(event)
            if isinstance(event, KvMeasured):
                usage = event.usage
            if isinstance(event, StepTimed) and usage is not None:
                now = self.clock()
                used = usage.rows_shared + usage.rows_private
                steps.append(Step(len(usage.paths), used, usage.bytes_held, now - start))
                start = now
        self.rounds.append(steps[1:])

    def steps(self, first: int = 0) -> list[Step]:
        """The steps of all rounds from round `first` on."""
        return [step for steps in self.rounds[first:] for step in steps]


class LastPath:
    """Compares a run's last live path with the same path in a run of its own."""

    def __init__(self, run: Watched) -> None:
        self._run = run
        self.in_it: list[float] = []
        self.alone: list[float] = []

    def make(self) -> None:
        """Record the last steps of the run's latest round, and the same steps of the path alone."""
        run = self._run
        last = [step.seconds for step in run.rounds[-1] if step.paths == 1][-LAST_STEPS:]
        text = max((sample.token_ids for sample in fold(run.events).samples), key=len)
        config = replace(WIDE, max_paths=1, max_new_tokens=len(last))
        continued = Request(PROMPT, config, continued=text[: -len(last)])
        alone = Watched(run.model, continued, run.clock)
        stop_ids, run.model.stop_ids = run.model.stop_ids, frozenset()
        alone.make()
        run.model.stop_ids = stop_ids
        self.in_it += last
        self.alone += [step.seconds for step in alone.steps()]


def whole_run(model: TransformersModel, texts: int, cache: str, clock: Clock) -> Watched:
    return Watched(model, Request(PROMPT, replace(WIDE, max_paths=texts, cache=cache)), clock)


@torch.inference_mode()
def run_linear_layers(model: TransformersModel, rows: int) -> None:
    """Multiply this many rows by the weights of every linear layer."""
    for layer in model._model.modules():
        if isinstance(layer, nn.Linear | ReorderedLinear):
            layer(torch.ones(1, rows, int(layer.in_features)))


def measure_64(model: TransformersModel, quick: bool, clock: Clock) -> Result:
    """Measure runs of 64 texts: whole runs and single steps."""
    tree, copies = (whole_run(model, 64, cache, clock) for cache in ("tree", "deep-copy"))
    last, numbers = LastPath(tree), torch.ones(2**24)
    linear_layers = partial(run_linear_layers, model, FEWEST_ENDING)
    jobs: dict[str, Callable[[], object]] = {
        "tree": tree.make,
        "last path": last.make,
        "deep copy": copies.make,
        "reading": numbers.sum,
        "linear layers": linear_layers,
    }
    measures = {name: timed(job, clock) for name, job in jobs.items()}
    timings = take_turns(measures, ROUNDS[64][quick])
    row_seconds = timings["reading"].median * model.card.row_bytes / numbers.nbytes
    steps = tree.steps(first=1)
    ending = [step for step in steps if FEWEST_ENDING <= step.paths < 64]
    halved = [step for step in steps if step.paths <= 32 and step.rows_used >= FEWEST_ROWS]
    over_reading = _timing(step.seconds / (step.rows_used * row_seconds) for step in ending)
    linear = timings["linear layers"].median
    linear_over_reading = _timing(linear / (step.rows_used * row_seconds) for step in ending)
    over_used = _timing(
        step.bytes_held / (step.rows_used * model.card.row_bytes) for step in halved
    )
    in_it, alone = Timing(tuple(last.in_it)), Timing(tuple(last.alone))
    of_steps = {
        "a step while a quarter ends": _timing(step.seconds for step in ending),
        "a step of the last path": in_it,
        "a step of the same path alone": alone,
    }
    rows = [
        *((f"64 texts, {name}: s", _spread(timings[name])) for name in ("tree", "deep copy")),
        *((f"64 texts, {name}: ms", _spread(one, 1000)) for name, one in of_steps.items()),
        ("64 texts, a step while a quarter ends over reading its rows", _spread(over_reading)),
        ("the linear layers of such a step over reading its rows", _spread(linear_over_reading)),
        ("64 texts, bytes held over used after half has ended", _spread(over_used)),
    ]
    ratios = {
        "tree_over_deep_copy_64_480": timings["tree"].median / timings["deep copy"].median,
        "step_over_reading_rows_while_ending_64": over_reading.median,
        "last_path_over_alone": in_it.median / alone.median,
        "linear_layers_over_reading_rows_while_ending_64": linear_over_reading.median,
        "held_over_used_rows_after_half_ended": over_used.median,
    }
    return rows, {f"64 texts, {name}": one for name, one in (timings | of_steps).items()}, ratios


def measure_256(model: TransformersModel, quick: bool, clock: Clock) -> Result:
    """Measure runs of 256 texts."""
    runs = {
        name: whole_run(model, 256, cache, clock)
        for name, cache in {"tree": "tree", "deep copy": "deep-copy"}.items()
    }
    measures = {name: timed(run.make, clock) for name, run in runs.items()}
    rounds = [{name: one() for name, one in measures.items()} for _ in range(ROUNDS[256][quick])]
    timings = {name: _timing(one[name] for one in rounds) for name in runs}
    ratio = timings["tree"].median / timings["deep copy"].median
    rows = [(f"256 texts, {name}: s", _spread(one)) for name, one in timings.items()]
    seconds = {f"256 texts, {name}": one for name, one in timings.items()}
    return rows, seconds, {"tree_over_deep_copy_256_480": ratio}


def measure_long(model: TransformersModel, quick: bool, clock: Clock) -> Result:
    """Time a run of 4 paths of 4,096 tokens, and the growth of its tensors."""
    growing: list[float] = []
    grow = TreeCache.grow

    def timed_grow(cache: TreeCache, more: int) -> Growth:
        start = clock()
        growth = grow(cache, more)
        growing.append(clock() - start)
        return growth

    run = Watched(model, Request(PROMPT, LONG), clock)
    context, stop_ids = model.context, model.stop_ids
    model.context, model.stop_ids = 2 * LONG.max_new_tokens, frozenset()
    with patch.object(TreeCache, "grow", timed_grow):
        run.make()
    model.context, model.stop_ids = context, stop_ids
    whole, share = sum(step.seconds for step in run.steps()), sum(growing)
    rows = [
        ("4 paths of 4,096 tokens: s", f"{whole:.1f}"),
        (f"of them in {len(growing)} growths: s", f"{share:.1f}"),
    ]
    seconds = {"4 paths": Timing((whole,)), "4 paths, growths": Timing(tuple(growing))}
    return rows, seconds, {"grow_share_4_paths_4096": share / whole}


def _timing(values: Iterable[float]) -> Timing:
    return Timing(tuple(values))


def _spread(timing: Timing, times: int = 1) -> str:
    return with_spread(timing, lambda value: f"{times * value:.2f}")


PARTS: Final = {"64": measure_64, "256": measure_256, "long": measure_long}


def main() -> None:
    parser = command_line(__doc__, quick="fewer rounds; one of the runs of 256 texts")
    offer_processor_time(parser)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    options = parser.parse_args()
    clock = clock_of(parser, options)
    torch.set_num_threads(options.threads)
    model = load_model("embedded", dtype="float32", device="cpu")
    rows: list[tuple[str, str]] = []
    seconds: dict[str, tuple[float, ...]] = {}
    ratios: dict[str, float] = {}
    for name, measure in PARTS.items():
        if options.only in (None, name):
            own_rows, timings, own = measure(model, options.quick, clock)
            rows += own_rows
            seconds |= {of: timing.seconds for of, timing in timings.items()}
            ratios |= own
    heads = ["what", "median (quartiles)"]
    text = (
        markdown_table(heads, rows)
        + "\n"
        + markdown_table(["ratio", ""], [(name, f"{ratio:.3f}") for name, ratio in ratios.items()])
    )
    result = {"seconds": seconds, "ratios": ratios}
    publish(options, where("float32"), text, result, mark="wide")


if __name__ == "__main__":
    main()
