"""The numbers that lessons refer to, each computed from recordings or measurements.

A lesson names a number as `forks`, as `bytes copied of deep-copy`, or as a ratio: `tokens through
the model of recompute over tree`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

from eab.analysis.answers import group_answers
from eab.analysis.schedule import Schedule
from eab.analysis.uncertainty import uncertainty
from eab.engine.speculation.stats import speculation_stats
from eab.errors import ConfigError, LessonError, RecordError, check_one_of
from eab.figures.kv_schemes import Scheme, kv_allocation
from eab.formatting import human_bytes, quoted, times
from eab.labs.batching import WAYS, shown
from eab.labs.measurement import Report, Values
from eab.labs.variants import CACHES, draft_length_variants
from eab.lessons.bundled_runs import batching, caches, draft_lengths, formats
from eab.run import RunState
from eab.weight_formats import WEIGHT_FORMATS

Source = Literal["run", "caches", "draft lengths", "batching", "formats"]
Part: TypeAlias = RunState | Schedule | Values

# The parts that a lesson can name, with the source and the type of each.
PARTS: Final[dict[str, tuple[Source, type]]] = {
    "run": ("run", RunState),
    **{name: ("caches", RunState) for name in CACHES},
    **{name: ("draft lengths", RunState) for name in draft_length_variants("model")},
    **{way: ("batching", Schedule) for way in WAYS},
    **{name: ("formats", dict) for name in WEIGHT_FORMATS},
}


@dataclass(frozen=True)
class Sources:
    """The data behind the numbers of a lesson; all but the run are loaded when needed."""

    run: RunState
    caches: Callable[[], Report]  # the same run with every cache
    draft_lengths: Callable[[], Report]  # one text, without and with drafts
    batching: Callable[[], Report]  # the same requests served in several ways
    formats: Callable[[], Report]  # a model in every weight format

    def part(self, name: str) -> Part | None:
        """One of `PARTS`; None if it was not recorded or measured."""
        source, _ = PARTS[name]
        if source == "run":
            return self.run
        if source == "batching":
            schedules: Mapping[Any, Schedule] = shown(self.batching())
            return schedules.get(name)
        if source == "formats":
            return next(iter(self.formats().rows("formats", weights=name)), None)
        compared = self.caches() if source == "caches" else self.draft_lengths()
        return compared.runs.get(name)


def bundled_sources(run: RunState) -> Sources:
    """This run with the recordings and measurements that are bundled with the project."""
    return Sources(run, caches, draft_lengths, batching, formats)


Unit = Literal["", "nats", "bytes", "share", "times"]
_BYTES: Final = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that can be computed for a run, a schedule or a weight format."""

    kind: type
    unit: Unit  # a share is from 0 to 1
    compute: Callable[[Any], float | None]


@dataclass(frozen=True, slots=True)
class LessonQuantity:
    """A measure of one part, or its ratio between two parts."""

    measure: str
    part: str = "run"  # the part that is measured; see `eab.lessons.measures.PARTS`
    over: str = ""  # the part whose value divides it; empty for no ratio

    @property
    def unit(self) -> Unit:
        """The unit of the value."""
        return "times" if self.over else MEASURES[self.measure].unit

    def value(self, sources: Sources) -> float | None:
        """The value; None if undefined, such as the first fork in a run without forks."""
        compute = MEASURES[self.measure].compute
        parts = [sources.part(part) for part in (self.part, self.over) if part]
        values = [None if part is None else compute(part) for part in parts]
        if any(value is None for value in values):
            return None
        if not self.over:
            return values[0]
        top, bottom = float(values[0] or 0), float(values[1] or 0)
        return top / bottom if bottom else None

    def in_words(self, sources: Sources) -> str:
        """The value as text, with its unit."""
        value = self.value(sources)
        return "none" if value is None else written(value, self.unit)


def written(value: float, unit: Unit) -> str:
    """A value and its unit as text: 0.6931, "nats" -> '0.69 nats'."""
    match unit:
        case "nats":
            return f"{value:.2f} nats" if value >= 0.1 or value == 0 else f"{value:.2g} nats"
        case "bytes":
            return human_bytes(value)
        case "share":
            return f"{100 * value:.3g}%"
        case "times":
            return times(value)
        case _:
            return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"


def parse(text: str) -> LessonQuantity:
    """The quantity that this text names; LessonError if the measure or part does not exist."""
    match = re.fullmatch(r"(?P<name>.+?)(?: of (?P<part>.+?))?(?: over (?P<over>.+))?", text)
    name = match["name"] if match is not None else text
    check_one_of(MEASURES, name, "the measure is", LessonError)
    part, over = (match["part"], match["over"]) if match is not None else ("", "")
    quantity = LessonQuantity(name, part or "run", over or "")
    kind = MEASURES[name].kind
    fitting = [measured for measured, (_, has) in PARTS.items() if has is kind]
    for part in filter(None, (quantity.part, quantity.over)):
        check_one_of(fitting, part, f"{quoted(name)} is asked of", LessonError)
    return quantity


def _forks(run: RunState) -> int:
    return sum(path.fork_entropy is not None for path in run.paths)


def first_fork(run: RunState) -> tuple[int, int] | None:
    """Path and index of the first token that a fork chose; None without forks."""
    children = [path for path in run.paths if path.parent >= 0 and path.tokens]
    first = min(children, key=lambda path: (path.born, path.id), default=None)
    return None if first is None else (first.id, 0)


def highest_entropy(run: RunState) -> tuple[int, int] | None:
    """Path and index of the token where the model was least sure; None without tokens."""
    tokens = [(path.id, index) for path in run.paths for index in range(len(path.tokens))]
    return max(tokens, key=lambda at: run.paths[at[0]].tokens[at[1]].entropy or 0.0, default=None)


def _entropy_at_first_fork(run: RunState) -> float | None:
    at = first_fork(run)
    return None if at is None else run.paths[at[0]].tokens[0].entropy


def _options_at_first_fork(run: RunState) -> float | None:
    entropy = _entropy_at_first_fork(run)
    return None if entropy is None else math.exp(entropy)


def _highest_entropy(run: RunState) -> float | None:
    return max(run.entropies(), default=None)


def _heaviest(run: RunState) -> float | None:
    return max((leaf.weight for leaf in run.leaves()), default=None)


def _sharing(run: RunState) -> float | None:
    kv = run.peak_kv
    rows = 0 if kv is None else kv.rows_shared + kv.rows_private
    return None if kv is None or not rows else kv.rows_independent / rows


def _bytes_by_formula(run: RunState) -> float | None:
    card = run.started.model
    width = _BYTES.get(card.dtype)
    numbers = sum(row.kv_heads * (row.key_dim + row.value_dim) for row in card.layer_rows)
    numbers = numbers or 2 * card.layers * card.kv_heads * card.head_dim
    return None if width is None else float(numbers * width)


def _bytes_held(run: RunState) -> int | None:
    return max((step.kv.bytes_held for step in run.steps if step.kv is not None), default=None)


def _last(run: RunState, name: str) -> int | None:
    kv = run.last_kv
    return None if kv is None else int(getattr(kv, name))


def _wasted(run: RunState, scheme: Scheme) -> float | None:
    try:
        return kv_allocation([run]).wasted_share(scheme)
    except (ConfigError, RecordError):  # another cache, or draft tokens
        return None


def _most_likely_first(run: RunState) -> float | None:
    tokens = run.paths[0].tokens or [path.tokens[0] for path in run.paths if path.tokens]
    first = tokens[0].candidates if tokens else ()
    return max((candidate.probability for candidate in first), default=None)


MEASURES: Final[dict[str, Measure]] = {
    "steps": Measure(RunState, "", lambda run: len(run.steps)),
    "forks": Measure(RunState, "", _forks),
    "texts": Measure(RunState, "", lambda run: len(run.leaves())),
    "tokens in the tree": Measure(
        RunState, "", lambda run: sum(len(path.tokens) for path in run.paths)
    ),
    "threshold": Measure(RunState, "nats", lambda run: run.started.threshold_nats),
    "entropy at the first fork": Measure(RunState, "nats", _entropy_at_first_fork),
    "effective choices at the first fork": Measure(RunState, "", _options_at_first_fork),
    "highest entropy": Measure(RunState, "nats", _highest_entropy),
    "probability that leads at step 0": Measure(RunState, "share", _most_likely_first),
    "weight that leads": Measure(RunState, "share", _heaviest),
    "tokens through the model": Measure(RunState, "", lambda run: run.tokens_through_model),
    "prompt tokens": Measure(RunState, "", lambda run: len(run.started.prompt_tokens)),
    "prompt tokens reused": Measure(RunState, "", lambda run: run.tokens_reused),
    "forward passes": Measure(RunState, "", lambda run: run.forward_passes),
    "bytes per token": Measure(RunState, "bytes", lambda run: run.started.model.row_bytes),
    "bytes per token by the formula": Measure(RunState, "bytes", _bytes_by_formula),
    "state bytes per text": Measure(RunState, "bytes", lambda run: run.started.model.state_bytes),
    "most bytes held": Measure(RunState, "bytes", _bytes_held),
    "bytes copied": Measure(RunState, "bytes", lambda run: _last(run, "bytes_copied")),
    "allocations": Measure(RunState, "", lambda run: _last(run, "allocations")),
    "sharing": Measure(RunState, "times", _sharing),
    "waste in slabs": Measure(RunState, "share", lambda run: _wasted(run, "slab")),
    "waste in blocks": Measure(RunState, "share", lambda run: _wasted(run, "blocks")),
    "waste in the tree": Measure(RunState, "share", lambda run: _wasted(run, "tree")),
    "acceptance rate": Measure(
        RunState, "share", lambda run: speculation_stats(run).acceptance_rate
    ),
    "tokens per forward pass": Measure(
        RunState, "", lambda run: speculation_stats(run).steps_per_pass
    ),
    "answers": Measure(RunState, "", lambda run: len(group_answers(run).ranked)),
    "explored": Measure(RunState, "share", lambda run: group_answers(run).explored),
    "semantic entropy": Measure(
        RunState, "nats", lambda run: uncertainty(run, group_answers(run)).semantic
    ),
    "passes to serve all": Measure(Schedule, "", lambda schedule: len(schedule.passes)),
    "idle slots": Measure(Schedule, "share", lambda schedule: schedule.idle_share),
    # of a row about a weight format
    "weight bytes": Measure(dict, "bytes", itemgetter("total_bytes")),
    "weight bytes read per step": Measure(dict, "bytes", itemgetter("read_bytes")),
    "divergence": Measure(dict, "nats", itemgetter("divergence")),
    "moved forks": Measure(dict, "share", itemgetter("flipped")),
}
