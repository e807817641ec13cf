"""Runs of a prompt that differ in KV cache or draft length, and repeats that time them."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, get_args

from msgspec import structs

from eab.config import CacheName, DrafterName
from eab.events import Event, ModelCard, Progressed, RunEnded, RunStarted
from eab.formatting import counted
from eab.record.report import Began, Report, ReportFormat
from eab.run import RunFold, RunState
from eab.timing import MIN_REPEATS, Timing
from eab.weight_formats import AS_LOADED

_DIGITS: Final = 7  # decimal places of seconds, i.e. 0.1 microseconds


@dataclass(frozen=True, slots=True)
class RunTimed:
    """The times of one run, and counts over its decode steps (all steps after the first)."""

    variant: str
    step_seconds: tuple[float | None, ...]  # None if an earlier pass served the step
    forward_seconds: float  # time of the forward passes of the decode steps
    draft_seconds: float  # time of the drafter in the decode steps
    forward_passes: int
    tokens: int  # tokens through the model in the decode steps
    draft_tokens: int

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(seconds for seconds in self.step_seconds if seconds is not None)

    @property
    def first_step(self) -> float:
        """Seconds of the step that prefills the prompt."""
        return next(iter(self.step_seconds), None) or 0.0

    @property
    def decode_seconds(self) -> float:
        """Seconds of all steps after the first."""
        return sum(self._decode_steps)

    @property
    def step_median(self) -> float:
        """Median seconds of the decode steps; of all steps if there is only one."""
        return statistics.median(self._decode_steps or [self.seconds])

    @property
    def _decode_steps(self) -> list[float]:
        return [seconds for seconds in self.step_seconds[1:] if seconds is not None]


def run_timed(variant: str, run: RunState) -> RunTimed:
    """The times of a run."""
    timings = [step.timing for step in run.steps]
    decoding = [timing for timing in timings[1:] if timing is not None]
    return RunTimed(
        variant,
        tuple(None if timing is None else round(timing.seconds, _DIGITS) for timing in timings),
        round(sum(timing.forward_seconds for timing in decoding), _DIGITS),
        round(sum(timing.draft_seconds for timing in decoding), _DIGITS),
        sum(step.forward_passes for step in run.steps[1:]),
        sum(timing.tokens for timing in decoding),
        sum(len(drafted.draft_tokens) for drafted in run.speculations),
    )


_InFile: TypeAlias = Began | RunTimed | Progressed | RunEnded


class VariantTimes(Report[Began, RunTimed]):
    """The repeats of a comparison; a recording has its runs in run files next to this file."""

    beginning = Began
    point = "repeat"


_FORMAT: Final = ReportFormat(VariantTimes, "eab-variant-times", 1, _InFile)
dumps, load = _FORMAT.dumps, _FORMAT.load


CACHES: Final[tuple[CacheName, ...]] = get_args(CacheName)
# The caches for a model that keeps states, or all of its memory, itself (see `make_cache`)
OWN_CACHES: Final[tuple[CacheName, ...]] = ("tree", "recompute")
# The tree again, with the prompt in the prefix cache from an earlier run
PROMPT_REUSED: Final = "prompt reused"
DRAFT_LENGTHS: Final = (1, 2, 4, 8)
REPEATS: Final = MIN_REPEATS  # repeats of each run after the first
Settings: TypeAlias = Mapping[str, Any]
VariantEvent: TypeAlias = Began | Event | RunTimed | Progressed
ROUNDING: Final = {"float64": 1e-6, "float32": 1e-3}  # nats of entropy
# nats of entropy, for bfloat16, float16, and weights in fewer bits, whose input is also rounded
COARSE_ROUNDING: Final = 0.2


@dataclass(frozen=True, slots=True)
class RunCost:
    """The measured costs of a run with its variant of the settings."""

    variant: str
    seconds: Timing  # all steps, in each repeat
    first_step_seconds: Timing  # up to the first token, including the prefill
    step_seconds: Timing  # the median decode step, in each repeat
    tokens_through_model: int
    tokens_reused: int  # prompt tokens that were in the prefix cache
    reused_bytes: int  # the part of the bytes held that is in the prefix cache
    peak_bytes: int  # the most KV bytes alive at any time, including temporary tensors
    most_held_bytes: int  # the most KV bytes held between steps
    held_last_bytes: int
    copied_bytes: int
    allocations: int
    ended: str  # how the run ended; empty during the run


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether a variant's run has the same tokens as the first run.

    Caches and draft tokens change the order of additions, and so the rounding of the logits.
    Occasionally, a draw near a boundary therefore takes another token.
    """

    variant: str
    first_difference: int | None  # step at which the trees diverge; None if they are equal
    entropy_gap: float  # the largest entropy difference (nats) up to this step
    explained: bool  # whether rounding with this dtype and weight format explains the gap


class VariantRuns(VariantTimes):
    """The runs of `variants` so far, and their repeats; `kind` ("cache") names what varies."""

    def __init__(self, variants: Mapping[str, Settings], kind: str) -> None:
        super().__init__()
        self.variants, self.kind = dict(variants), kind
        self.left_out: tuple[str, ...] = ()  # variants that the model does not support
        self._folds: list[RunFold] = []

    def apply(self, event: VariantEvent) -> None:
        """Fold one more event: first of the runs of all variants, then of their repeats."""
        if isinstance(event, Progressed):  # of the repeats, each about as long as the first runs
            super().apply(structs.replace(event, share=(1 + event.share * REPEATS) / (1 + REPEATS)))
        elif isinstance(event, Began | RunTimed) or self.has_all_runs:
            super().apply(event)
        else:
            self._apply_to_run(event)

    def _apply_to_run(self, event: Event) -> None:
        if not self._folds or self._folds[-1].ended is not None:
            self._folds.append(RunFold())
        fold = self._folds[-1]
        fold.apply(event)
        if isinstance(event, RunStarted) and self.begun == 1:
            asked, self.variants = self.variants, dict(possible(self.variants, event.model))
            self.left_out = tuple(name for name in asked if name not in self.variants)
        self.ended = fold.ended if fold.ended is not None and fold.ended.stopped else None
        share = (self.begun - 1 + fold.progress.share) / len(self.variants)
        first = f"{self.begun} of {counted(len(self.variants), 'run')}, then {REPEATS} repeats"
        words = f"{self.current} ({first}): {fold.progress.words.lower()}"
        self.progress = Progressed(share / (1 + REPEATS), words)

    @property
    def made(self) -> str:
        """The number of runs and repeats, as text."""
        repeats = f", {counted(self.repeats, 'repeat')}" if self.has_all_runs else ""
        return f"{len(self.pairs)} of {counted(len(self.variants), 'run')}{repeats}"

    @property
    def begun(self) -> int:
        """The number of variants whose run has started."""
        return len(self._folds)

    @property
    def current_step(self) -> int:
        """The number of steps of the current run so far."""
        run = self._folds[-1].run if self._folds else None
        return len(run.steps) if run is not None else 0

    @property
    def has_all_runs(self) -> bool:
        """Whether every run has ended without being stopped; repeats may follow."""
        ended = self._folds[-1].ended if self._folds else None
        return self.begun == len(self.variants) and ended is not None and not ended.stopped

    @property
    def repeats(self) -> int:
        """How often all finished variants have been repeated."""
        finished = [name for name, run in self.pairs if _is_finished(run)]
        return min((len(self._timed(name)) for name in finished), default=0)

    @property
    def current(self) -> str:
        """The variant whose run started last; before the first start, the first variant."""
        return [*self.variants][max(0, self.begun - 1)]

    @property
    def agreed(self) -> bool:
        """Whether all runs so far finished and differ from the first by rounding at most."""
        finished = all(run.ended and run.ended.reason == "finished" for run in self._folds)
        return finished and all(agreement.explained for agreement in self.agreements())

    @property
    def pairs(self) -> list[tuple[str, RunState]]:
        """The runs that have started, with their variants."""
        folds = zip(self.variants, self._folds, strict=False)
        return [(name, state.run) for name, state in folds if state.run is not None]

    @property
    def runs(self) -> list[RunState]:
        """The runs that have started, in the order of the variants."""
        return [run for _, run in self.pairs]

    def costs(self) -> list[RunCost]:
        """The costs of each variant so far."""
        return [run_cost(name, run, self.times(name)) for name, run in self.pairs]

    def times(self, variant: str) -> Sequence[RunTimed]:
        """The times of a variant's repeats, or of its first run if there are no repeats yet."""
        return self._timed(variant) or [run_timed(variant, dict(self.pairs)[variant])]

    def _timed(self, variant: str) -> list[RunTimed]:
        return [timed for timed in self.points if timed.variant == variant]

    def timing(self, variant: str, seconds: Callable[[RunTimed], float]) -> Timing:
        """One time of a variant, in each repeat."""
        return Timing(tuple(map(seconds, self.times(variant))))

    def agreements(self) -> list[Agreement]:
        """Each further finished run compared with the first."""
        finished = [(name, run) for name, run in self.pairs if _is_finished(run)]
        return [_agreement(name, run, finished[0][1]) for name, run in finished[1:]]


def possible(variants: Mapping[str, Settings], card: ModelCard) -> Mapping[str, Settings]:
    """The variants that the model supports."""
    if not card.own_memory:
        return variants
    return {
        name: settings
        for name, settings in variants.items()
        if settings.get("cache", "tree") in OWN_CACHES and name != PROMPT_REUSED
    }


def cache_variants(caches: Sequence[CacheName] = CACHES) -> VariantRuns:
    """An empty comparison: the same run with each cache, and the tree with a reused prompt."""
    variants: dict[str, Settings] = {name: {"cache": name} for name in caches}
    return VariantRuns(variants | {PROMPT_REUSED: {"cache": "tree"}}, "cache")


def draft_length_variants(drafter: DrafterName) -> VariantRuns:
    """An empty comparison: a plain run, and the same run with a drafter at several lengths."""
    variants: dict[str, Settings] = {"plain": {"drafter": "none"}}
    variants |= {
        counted(length, "draft token"): {"drafter": drafter, "draft_length": length}
        for length in DRAFT_LENGTHS
    }
    return VariantRuns(
        variants | {"adaptive": {"drafter": drafter, "draft_length": 0}}, "draft length"
    )


def run_cost(variant: str, run: RunState, repeats: Sequence[RunTimed] = ()) -> RunCost:
    """The costs of the run so far; without repeats, from the run's own times."""
    times = repeats or [run_timed(variant, run)]
    kv = [step.kv for step in run.steps if step.kv is not None]
    return RunCost(
        variant=variant,
        seconds=Timing(tuple(timed.seconds for timed in times)),
        first_step_seconds=Timing(tuple(timed.first_step for timed in times)),
        step_seconds=Timing(tuple(timed.step_median for timed in times)),
        tokens_through_model=run.tokens_through_model,
        tokens_reused=run.tokens_reused,
        reused_bytes=(kv[-1].rows_reused if kv else 0) * run.started.model.row_bytes,
        peak_bytes=kv[-1].peak_bytes if kv else 0,
        most_held_bytes=max((usage.bytes_held for usage in kv), default=0),
        held_last_bytes=kv[-1].bytes_held if kv else 0,
        copied_bytes=kv[-1].bytes_copied if kv else 0,
        allocations=kv[-1].allocations if kv else 0,
        ended=run.ended.reason if run.ended is not None else "",
    )


def cost_values(cost: RunCost) -> dict[str, Any]:
    """The costs by field as plain values; a timing as its median and quartiles `_low`, `_high`."""
    values: dict[str, Any] = {}
    for field in fields(cost):
        value = getattr(cost, field.name)
        if isinstance(value, Timing):
            values[field.name] = value.median
            values |= {f"{field.name}_low": value.low, f"{field.name}_high": value.high}
        else:
            values[field.name] = value
    return values | {"repeats": len(cost.seconds.seconds)}


def _is_finished(run: RunState) -> bool:
    return run.ended is not None and run.ended.reason == "finished"


def _agreement(variant: str, run: RunState, first: RunState) -> Agreement:
    step = min((step for step, _, _ in _choices(run) ^ _choices(first)), default=None)
    ours, theirs = _entropies(run, step), _entropies(first, step)
    gap = max((abs(ours[key] - theirs[key]) for key in ours.keys() & theirs.keys()), default=0.0)
    return Agreement(variant, step, gap, gap <= _rounding(run.started.model))


def _rounding(card: ModelCard) -> float:
    if card.weights != AS_LOADED:
        return COARSE_ROUNDING
    return ROUNDING.get(card.dtype, COARSE_ROUNDING)


def _choices(run: RunState) -> set[tuple[int, int, int]]:
    """All (step, path, token). Path ids follow the order of birth: equal trees have equal ids."""
    return {(token.step, path.id, token.id) for path in run.paths for token in path.tokens}


def _entropies(run: RunState, until: int | None) -> dict[tuple[int, int], float]:
    """Entropies up to this step by (step, predicting path); the parent predicts a first token."""
    return {
        (
            token.step,
            path.parent if token is path.tokens[0] and path.parent >= 0 else path.id,
        ): token.entropy or 0.0
        for path in run.paths
        for token in path.tokens
        if until is None or token.step <= until
    }
