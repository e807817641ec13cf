"""Runs of a prompt that differ in KV cache or draft length, and repeats that time them.

The first run of each variant is kept whole; whether all give the same tokens follows from these.
The columns of the tables, for the repeats after it:

- `repeats`, a row for each repeat: `variant`, `repeat` (from 1), `seconds` of the whole run, of the
  `first` step, which prefills the prompt, of the median decode `step`, of all decode steps
  (`decode`), and of these, those of the model's passes (`forward`) and of the drafter
  (`drafting`); and over the decode steps the numbers of forward `passes`, of `tokens` through the
  model, and of draft tokens (`drafted`), which vary if the draft length is adaptive
- `steps`, a row for each decode step of a repeat: `variant`, `repeat`, `step` and its `seconds`;
  without steps that an earlier pass served
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, get_args

import pandas as pd

from eab import token_text
from eab.config import CacheName, DrafterName
from eab.figures.kv_memory import separate_bytes
from eab.formatting import counted, human_bytes, listed
from eab.labs.measurement import Report, Row, Values
from eab.run import RunState
from eab.run.events import ModelCard
from eab.timing import MIN_REPEATS, Timing
from eab.weight_formats import AS_LOADED

CACHES: Final[tuple[CacheName, ...]] = get_args(CacheName)
# The caches for a model that keeps states, or all of its memory, itself (see `make_cache`)
OWN_CACHES: Final[tuple[CacheName, ...]] = ("tree", "recompute")
# The tree again, with the prompt in the prefix cache from an earlier run
PROMPT_REUSED: Final = "prompt reused"
DRAFT_LENGTHS: Final = (1, 2, 4, 8)
REPEATS: Final = MIN_REPEATS  # repeats of each run after the first
UNITS: Final = dict.fromkeys(("seconds", "first", "step", "decode", "forward", "drafting"), "s")
Settings: TypeAlias = Mapping[str, Any]
Variants: TypeAlias = Mapping[str, Settings]
ROUNDING: Final = {"float64": 1e-6, "float32": 1e-3}  # nats of entropy
# nats of entropy, for bfloat16, float16, and weights in fewer bits, whose input is also rounded
COARSE_ROUNDING: Final = 0.2


def cache_variants(caches: Sequence[CacheName] = CACHES) -> Variants:
    """The same run with each cache, and the tree with a reused prompt."""
    return {name: {"cache": name} for name in caches} | {PROMPT_REUSED: {"cache": "tree"}}


def draft_length_variants(drafter: DrafterName) -> Variants:
    """A plain run, and the same run with a drafter at several lengths."""
    lengths = {counted(length, "draft token"): length for length in DRAFT_LENGTHS}
    return {"plain": {"drafter": "none"}} | {
        name: {"drafter": drafter, "draft_length": length}
        for name, length in (lengths | {"adaptive": 0}).items()
    }


def possible(variants: Variants, card: ModelCard) -> Variants:
    """The variants that the model supports."""
    if not card.own_memory:
        return variants
    return {
        name: settings
        for name, settings in variants.items()
        if settings.get("cache", "tree") in OWN_CACHES and name != PROMPT_REUSED
    }


def repeat_rows(variant: str, repeat: int, run: RunState) -> Iterator[Row]:
    """The rows about one repeat; its `repeats` row comes first."""
    timings = [(step.step, step.timing) for step in run.steps if step.timing is not None]
    seconds = [timing.seconds for _, timing in timings]
    decoding = [(step, timing) for step, timing in timings if step]
    steps = [timing.seconds for _, timing in decoding]
    values: Values = {"variant": variant, "repeat": repeat}
    times = {
        "seconds": sum(seconds),
        "first": next(iter(seconds), 0.0),
        "step": statistics.median(steps or [sum(seconds)]),
        "decode": sum(steps),
        "forward": sum(timing.forward_seconds for _, timing in decoding),
        "drafting": sum(timing.draft_seconds for _, timing in decoding),
    }
    counts = {
        "passes": sum(step.forward_passes for step in run.steps[1:]),
        "tokens": sum(timing.tokens for _, timing in decoding),
        "drafted": sum(len(drafted.draft_tokens) for drafted in run.speculations),
    }
    yield Row("repeats", values | times | counts)
    for step, timing in decoding:
        yield Row("steps", values | {"step": step, "seconds": timing.seconds})


def repeats_of(report: Report, variant: str) -> list[Values]:
    """The rows of a variant's repeats, or of its first run if there are no repeats yet."""
    rows = report.rows("repeats", variant=variant)
    return rows or [next(repeat_rows(variant, 0, report.runs[variant])).values]


def variant_times(report: Report, variant: str, column: str) -> Timing:
    """One time of a variant in each repeat, or in its first run."""
    return Timing(tuple(row[column] for row in repeats_of(report, variant)))


def left_out(report: Report) -> list[str]:
    """The variants that the model does not support."""
    given = report.began.given if report.began is not None else ()
    return [row["variant"] for row in given if row["left_out"]]


def has_all_runs(report: Report) -> bool:
    """Whether every variant has a run that has ended; repeats may follow."""
    given = report.began.given if report.began is not None else ()
    ended = [name for name, run in report.runs.items() if run.ended is not None]
    return bool(given) and len(ended) == len(given) - len(left_out(report))


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


def costs_of(report: Report) -> list[RunCost]:
    """The costs of each variant so far."""
    return report.computed(_costs)


def _costs(report: Report) -> list[RunCost]:
    return [_run_cost(report, name, run) for name, run in report.runs.items()]


def _run_cost(report: Report, variant: str, run: RunState) -> RunCost:
    kv = [step.kv for step in run.steps if step.kv is not None]
    ended = run.ended or report.ended
    return RunCost(
        variant=variant,
        seconds=variant_times(report, variant, "seconds"),
        first_step_seconds=variant_times(report, variant, "first"),
        step_seconds=variant_times(report, variant, "step"),
        tokens_through_model=run.tokens_through_model,
        tokens_reused=run.tokens_reused,
        reused_bytes=(kv[-1].rows_reused if kv else 0) * run.started.model.row_bytes,
        peak_bytes=kv[-1].peak_bytes if kv else 0,
        most_held_bytes=max((usage.bytes_held for usage in kv), default=0),
        held_last_bytes=kv[-1].bytes_held if kv else 0,
        copied_bytes=kv[-1].bytes_copied if kv else 0,
        allocations=kv[-1].allocations if kv else 0,
        ended=ended.reason if ended is not None else "",
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


def costs_table(report: Report) -> pd.DataFrame:
    """One row per variant: measured seconds (median and quartiles), tokens, bytes, allocations."""
    return pd.DataFrame([cost_values(cost) for cost in costs_of(report)])


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


def agreements(report: Report) -> list[Agreement]:
    """Each further finished run compared with the first."""
    return report.computed(_agreements)


def _agreements(report: Report) -> list[Agreement]:
    finished = [(name, run) for name, run in report.runs.items() if _is_finished(run)]
    return [_agreement(name, run, finished[0][1]) for name, run in finished[1:]]


def agree(report: Report) -> bool:
    """Whether all runs so far finished and differ from the first by rounding at most."""
    finished = all(_is_finished(run) for run in report.runs.values())
    return finished and all(agreement.explained for agreement in agreements(report))


def variants_sentence(report: Report) -> str:
    """Whether all variants give the same tokens, and which failed or were left out."""
    unlike = [
        agreement
        for agreement in agreements(report)
        if agreement.first_difference is not None or not agreement.explained
    ]
    words = [_difference_words(agreement) for agreement in unlike]
    if agreements(report) and not unlike:
        count = len(agreements(report)) + 1
        words.append(f"{'Both' if count == 2 else f'All {count}'} runs have the same tokens.")
    words += [
        f"{name} failed: {token_text.visible(run.ended.message)}."
        for name, run in report.runs.items()
        if run.ended is not None and run.ended.reason == "failed"
    ]
    if (lacking := left_out(report)) and report.runs:
        verb = "is" if len(lacking) == 1 else "are"
        model = next(iter(report.runs.values())).started.model
        meaning = "" if model.shares_rows else " For this model, the cache “tree” is that memory."
        words.append(
            f"{listed(lacking)} {verb} left out, because this model keeps more than KV "
            f"rows. {model.own_memory}{meaning}"
        )
    words.append(_windows_words(report.runs.get("tree")))
    return " ".join(filter(None, words)) or "Nothing to compare yet."


def _windows_words(tree: RunState | None) -> str:
    """Bytes in caches that drop rows behind a window, unlike the caches that are compared."""
    kv = None if tree is None else tree.peak_kv
    if tree is None or kv is None or not tree.started.model.window_rows:
        return ""
    alone = human_bytes(separate_bytes(tree.started, kv))
    words = f"Separate caches that drop the rows behind a window would hold {alone} (computed)."
    return f"{tree.started.model.attention} {words}".lstrip()


def _difference_words(agreement: Agreement) -> str:
    if agreement.explained:
        return (
            f"{agreement.variant} takes another token at step {agreement.first_difference} "
            "because of rounding: before it, the entropies agree to "
            f"{agreement.entropy_gap:.1g} nats."
        )
    return (
        f"{agreement.variant} gives other results: its entropies differ by up to "
        f"{agreement.entropy_gap:.2g} nats, more than rounding can explain."
    )


def _is_finished(run: RunState) -> bool:
    return run.ended is not None and run.ended.complete


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
