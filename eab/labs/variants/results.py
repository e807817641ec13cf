"""Runs of a prompt that differ in their KV cache or draft length, and repeats to time them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias, get_args

from eab.config import CacheName, DrafterName
from eab.events import Event, ModelCard, Progressed, RunStarted
from eab.formatting import counted
from eab.labs.variants.times import RunTimed, VariantTimes, run_timed
from eab.record.report import Began
from eab.run import RunFold, RunState
from eab.timing import MIN_REPEATS, Timing
from eab.weight_formats import AS_LOADED

CACHES: Final[tuple[CacheName, ...]] = get_args(CacheName)
# Those of a model that keeps states, or all of its memory, in its own way (see `make_cache`)
OWN_CACHES: Final[tuple[CacheName, ...]] = ("tree", "recompute")
# The tree once more, when the prefix cache has the prompt from the run before
PROMPT_REUSED: Final = "prompt reused"
DRAFT_LENGTHS: Final = (1, 2, 4, 8)
REPEATS: Final = MIN_REPEATS  # of each run, after the first
Settings: TypeAlias = Mapping[str, Any]
VariantEvent: TypeAlias = Began | Event | RunTimed | Progressed
ROUNDING: Final = {"float64": 1e-6, "float32": 1e-3}  # nats of entropy
# nats of entropy: bfloat16 and float16, and weights in fewer bits, whose input is rounded, too
COARSE_ROUNDING: Final = 0.2


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run took under its variant of the settings. All measured."""

    variant: str
    seconds: Timing  # what all steps took, in each repeat
    first_step_seconds: Timing  # up to the first token: the prompt is computed
    step_seconds: Timing  # the median of the decode steps, in each repeat
    tokens_through_model: int
    tokens_reused: int  # tokens of the prompt that were in the prefix cache
    reused_bytes: int  # of what it holds, what is in the prefix cache
    peak_bytes: int  # the most KV bytes alive at once, temporary tensors included
    most_held_bytes: int  # the most KV bytes held between steps
    held_last_bytes: int
    copied_bytes: int
    allocations: int
    ended: str  # how the run ended; empty while it goes on


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether a variant's run has the same tokens as the first run.

    Caches and draft tokens change the order of additions, and so the rounding of the logits: now
    and then a draw next to a boundary takes another token.
    """

    variant: str
    first_difference: int | None  # the step at which the trees diverge; None if they are the same
    entropy_gap: float  # the largest difference (nats) between the entropies of both up to there
    explained: bool  # whether rounding in the model's dtype and weights explains this gap


class VariantRuns(VariantTimes):
    """The runs of `variants` so far, and their repeats; `kind` ("cache") is what varies."""

    def __init__(self, variants: Mapping[str, Settings], kind: str) -> None:
        super().__init__()
        self.variants, self.kind = dict(variants), kind
        self.left_out: tuple[str, ...] = ()  # variants that the model cannot have
        self._folds: list[RunFold] = []

    def apply(self, event: VariantEvent) -> None:
        """Fold one more event, first of the runs of all variants, then of their repeats."""
        if isinstance(event, Progressed):  # of the repeats, which take about as long each
            super().apply(replace(event, share=(1 + event.share * REPEATS) / (1 + REPEATS)))
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
        """How many runs and repeats it has."""
        repeats = f", {counted(self.repeats, 'repeat')}" if self.has_all_runs else ""
        return f"{len(self.pairs)} of {counted(len(self.variants), 'run')}{repeats}"

    @property
    def begun(self) -> int:
        """Variants whose run has begun."""
        return len(self._folds)

    @property
    def current_step(self) -> int:
        """Steps of the current variant's run so far."""
        run = self._folds[-1].run if self._folds else None
        return len(run.steps) if run is not None else 0

    @property
    def has_all_runs(self) -> bool:
        """Whether every run has ended without being stopped; repeats may follow."""
        ended = self._folds[-1].ended if self._folds else None
        return self.begun == len(self.variants) and ended is not None and not ended.stopped

    @property
    def repeats(self) -> int:
        """How often every variant that finished was repeated."""
        finished = [name for name, run in self.pairs if _is_finished(run)]
        return min((len(self._timed(name)) for name in finished), default=0)

    @property
    def current(self) -> str:
        """The variant whose run began last; the first one before any run began."""
        return [*self.variants][max(0, self.begun - 1)]

    @property
    def agreed(self) -> bool:
        """Whether every run so far finished and differs from the first by rounding at most."""
        finished = all(run.ended and run.ended.reason == "finished" for run in self._folds)
        return finished and all(agreement.explained for agreement in self.agreements())

    @property
    def pairs(self) -> list[tuple[str, RunState]]:
        """The runs that have started, with their variants."""
        folds = zip(self.variants, self._folds, strict=False)
        return [(name, state.run) for name, state in folds if state.run is not None]

    @property
    def runs(self) -> list[RunState]:
        """The runs that have started, in the order of their variants."""
        return [run for _, run in self.pairs]

    def costs(self) -> list[RunCost]:
        """What each variant took so far."""
        return [run_cost(name, run, self.times(name)) for name, run in self.pairs]

    def times(self, variant: str) -> Sequence[RunTimed]:
        """The times of the repeats of a variant; of its first run, as long as there are none."""
        return self._timed(variant) or [run_timed(variant, dict(self.pairs)[variant])]

    def _timed(self, variant: str) -> list[RunTimed]:
        return [timed for timed in self.points if timed.variant == variant]

    def timing(self, variant: str, seconds: Callable[[RunTimed], float]) -> Timing:
        """One of these times in each repeat."""
        return Timing(tuple(map(seconds, self.times(variant))))

    def agreements(self) -> list[Agreement]:
        """Each further finished run, compared with the first."""
        finished = [(name, run) for name, run in self.pairs if _is_finished(run)]
        return [_agreement(name, run, finished[0][1]) for name, run in finished[1:]]


def possible(variants: Mapping[str, Settings], card: ModelCard) -> Mapping[str, Settings]:
    """Those that the model can have."""
    if not card.own_memory:
        return variants
    return {
        name: settings
        for name, settings in variants.items()
        if settings.get("cache", "tree") in OWN_CACHES and name != PROMPT_REUSED
    }


def cache_variants(caches: Sequence[CacheName] = CACHES) -> VariantRuns:
    """An empty comparison: the same run with each cache, and the tree again, its prompt reused."""
    variants: dict[str, Settings] = {name: {"cache": name} for name in caches}
    return VariantRuns(variants | {PROMPT_REUSED: {"cache": "tree"}}, "cache")


def draft_length_variants(drafter: DrafterName) -> VariantRuns:
    """An empty comparison: a plain run, and the same run with one drafter at several lengths."""
    variants: dict[str, Settings] = {"plain": {"drafter": "none"}}
    variants |= {
        counted(length, "draft token"): {"drafter": drafter, "draft_length": length}
        for length in DRAFT_LENGTHS
    }
    return VariantRuns(
        variants | {"adaptive": {"drafter": drafter, "draft_length": 0}}, "draft length"
    )


def fold_variants(events: Iterable[VariantEvent], compared: VariantRuns) -> VariantRuns:
    """The comparison after these further events."""
    for event in events:
        compared.apply(event)
    return compared


def run_cost(variant: str, run: RunState, repeats: Sequence[RunTimed] = ()) -> RunCost:
    """What the run took so far; without repeats, its own times count."""
    times = repeats or [run_timed(variant, run)]
    kv = [step.kv for step in run.steps if step.kv is not None]
    return RunCost(
        variant=variant,
        seconds=Timing(tuple(timed.seconds for timed in times)),
        first_step_seconds=Timing(tuple(timed.first_step for timed in times)),
        step_seconds=Timing(tuple(timed.step_median for timed in times)),
        tokens_through_model=run.tokens_through_model(),
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
    """The same as plain values by field; a timing has its median, and quartiles `_low`, `_high`."""
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
    """(step, path, token). Path ids follow the order of birth, so equal trees have equal ids."""
    return {(token.step, path.id, token.token) for path in run.paths for token in path.tokens}


def _entropies(run: RunState, until: int | None) -> dict[tuple[int, int], float]:
    """Up to this step, by step and by the path whose next token was predicted: a child's parent."""
    return {
        (
            token.step,
            path.parent if token is path.tokens[0] and path.parent >= 0 else path.id,
        ): token.entropy
        for path in run.paths
        for token in path.tokens
        if until is None or token.step <= until
    }
