"""The BMC measurements: generators of rows of results, with progress between them.

The settings of an experiment alternate, round by round; the first round is a warm-up without rows
of results. To stop a measurement, stop iterating.

The first two experiments repeat questions of the paper; the third compares the shapes of models, in
time and memory. No number is taken from the paper.
"""

import math
import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from typing import Final, assert_never

import torch

from eab.engine.caches.baselines import DeepCopyCache
from eab.engine.caches.growth import CacheWorkload, CostModel, best_r, in_whole_blocks
from eab.engine.caches.shape import KVShape
from eab.engine.models.base import LanguageModel, refuse_own_memory
from eab.engine.models.machine import describe_machine
from eab.labs.bmc import CONCAT, Experiment
from eab.labs.decode_steps import (
    NO_LIMIT,
    Calibrator,
    RunBatch,
    StepTime,
    TimedTreeCache,
    attention_alone,
    calibrate,
    now,
    prefilled_tree,
    time_spare_rows,
    time_step,
)
from eab.labs.measurement import Counter, LabBegan, LabEvent, Row, Values, repeat_words
from eab.run.events import Progressed, RunEnded
from eab.timing import MIN_REPEATS

# Approximate time between pauses; a step or calibration round is never interrupted.
PAUSE_SECONDS: Final = 0.2
REPEATS: Final = MIN_REPEATS


def whole_model(model: LanguageModel) -> RunBatch:
    """A function that runs the whole step: the model's forward pass through the cache."""
    return lambda batch: model.forward([batch])


def calibrate_first(
    calibrator: Calibrator, counter: Counter
) -> Generator[LabEvent, None, CostModel]:
    """Calibrate as the current part of a measurement; also yields the constants as a row."""
    steps = calibrate(calibrator)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            costs: CostModel = end.value
            yield Row("costs", asdict(costs))
            counter.done += 1
            return costs
        yield counter.at(done.words, done.share)


DRAFTS: Final = 4  # draft tokens per forward pass
REJECTIONS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
PROMPT_ROWS: Final = 16


def rejected_drafts(
    model: LanguageModel,
    rows: int,
    repeats: int = REPEATS,
    rejections: Sequence[float] = REJECTIONS,
    seed: int = 0,
) -> Iterator[LabEvent]:
    """Experiment 2: verify DRAFTS draft tokens in one forward pass, and trim the rejected ones.

    Rejections are drawn at a given rate. The times of growing, of the model's pass and of trimming
    are measured; drafting is not. The ways alternate and process the same numbers of tokens.
    """
    rows = min(rows, model.context - PROMPT_ROWS - DRAFTS - 1)
    counter = Counter(1 + (repeats + 1) * len(rejections))
    costs = yield from calibrate_first(Calibrator(model.kv_shape, rows), counter)
    for number, rejection in counter.rounds(repeats, rejections):
        caches = _caches_by_way(model.kv_shape, rejection, rows, costs)
        for event in _time_rejection(model, rejection, rows, caches, random.Random(seed)):
            if isinstance(event, Progressed):
                yield counter.at(f"{repeat_words(number, repeats)}: {event.words}", event.share)
            elif number:
                yield event


def _time_rejection(
    model: LanguageModel,
    rejection: float,
    rows: int,
    caches: dict[str, tuple[TimedTreeCache | DeepCopyCache, int]],
    rng: random.Random,
) -> Iterator[Progressed | Row]:
    """Time all ways at one rejection rate; yield progress, and one row per way at the end."""
    run, device = whole_model(model), model.kv_shape.device
    growth, rest = dict.fromkeys(caches, 0.0), dict.fromkeys(caches, 0.0)
    lengths, passes, paused = dict.fromkeys(caches, 0), dict.fromkeys(caches, 0), now(device)
    while any(length < rows for length in lengths.values()):
        kept = 1 + next((draft for draft in range(DRAFTS) if rng.random() < rejection), DRAFTS)
        for way, (cache, tokens) in caches.items():
            if lengths[way] >= rows:
                continue
            lengths[way] += min(kept, tokens, rows - lengths[way])
            step, trimming = _verify_and_trim(run, cache, tokens, PROMPT_ROWS + lengths[way])
            growth[way] += step.growth + trimming
            rest[way] += step.rest
            passes[way] += 1
        if now(device) - paused > PAUSE_SECONDS:
            least = min(lengths.values())
            yield Progressed(least / rows, f"{rejection:.0%} rejected: {least} rows of {rows}")
            paused = now(device)
    for way, (_, tokens) in caches.items():
        values: Values = {"rejection": rejection, "way": way, "drafts": tokens - 1}
        values |= {"passes": passes[way], "tokens": rows}
        yield Row("rejection", values | {"growth": growth[way], "rest": rest[way]})


def _caches_by_way(
    shape: KVShape, rejection: float, rows: int, costs: CostModel
) -> dict[str, tuple[TimedTreeCache | DeepCopyCache, int]]:
    """For each way, a cache that holds the prompt, and its tokens per forward pass."""
    prompt, verified = PROMPT_ROWS, DRAFTS + 1
    # Expected number of tokens per forward pass: Leviathan et al. (arXiv 2211.17192), Eq. 1
    kept = sum((1 - rejection) ** drafts for drafts in range(DRAFTS + 1))
    plain = best_r(costs, CacheWorkload(rows, prompt))
    # In rows, because a forward pass writes all its draft tokens before any are trimmed
    drafting = max(
        verified, round(best_r(costs, CacheWorkload(rows, prompt, kept, verified)) * kept)
    )

    def tree(r: int) -> TimedTreeCache:
        return prefilled_tree(shape, prompt, r, padded=True)

    return {
        "no drafts, r*": (tree(plain), 1),
        CONCAT: (_concatenating_cache(shape, prompt), verified),
        "r = 1": (tree(1), verified),
        "r*": (tree(drafting), verified),
        "all rows at the start": (tree(rows + verified), verified),
    }


def _verify_and_trim(
    run: RunBatch, cache: TimedTreeCache | DeepCopyCache, tokens: int, length: int
) -> tuple[StepTime, float]:
    """Time one forward pass, and the trimming of its tokens from position `length` on (seconds)."""
    step = time_step(run, cache, [1], tokens)
    start = now(cache.shape.device)
    cache.trim(1, length)
    return step, now(cache.shape.device) - start


@torch.inference_mode()
def _concatenating_cache(shape: KVShape, prompt: int) -> DeepCopyCache:
    """The usual way: torch.cat in every pass, and a copy of the kept rows after a rejection."""
    cache = DeepCopyCache(shape, NO_LIMIT)
    attention_alone(shape)(cache.prepare([0], [[0] * prompt]))
    cache.fork(0, [1])
    return cache


# layers, KV heads, head size, query heads per KV head
SIZES: Final = {
    "GPT-2 124M": (12, 12, 64, 1),
    "SmolLM2-135M": (30, 3, 64, 3),
    "Qwen2.5-0.5B": (24, 2, 64, 7),
}


def measure(
    experiment: Experiment, model: LanguageModel, rows: int, repeats: int = REPEATS
) -> Iterator[LabEvent]:
    """Run one experiment: `repeats` repeats after a warm-up."""
    refuse_own_memory(model)
    card = model.card
    yield LabBegan(card.name, card.dtype, describe_machine(card.device), experiment)
    match experiment:
        case "growth":
            yield from sensitivity_to_r(model.kv_shape, rows, repeats)
        case "rejection":
            yield from rejected_drafts(model, rows, repeats)
        case "sizes":
            yield from other_sizes(model.kv_shape, card.name, rows, repeats)
        case _:
            assert_never(experiment)
    yield RunEnded(0, "finished")


def sensitivity_to_r(shape: KVShape, rows: int, repeats: int = REPEATS) -> Iterator[LabEvent]:
    """Experiment 1: write `rows` rows at many r with padded attention, at a few r with sliced.

    A calibration before the runs predicts r*.
    """
    most_settings = int(math.log2(rows)) + 3 + 3
    counter = Counter(1 + (repeats + 1) * most_settings)
    costs = yield from calibrate_first(Calibrator(shape, rows), counter)
    predicted = in_whole_blocks(best_r(costs, CacheWorkload(rows)))
    settings = [(r, True) for r in r_grid(rows, predicted)] + [(r, False) for r in (1, 16, rows)]
    for number in range(repeats + 1):
        words = repeat_words(number, repeats)
        yield from _time_round(shape, rows, settings, number, words, counter)


def r_grid(rows: int, predicted: int) -> list[int]:
    """Powers of two up to `rows`, plus `rows` itself and the predicted r*."""
    return sorted({2**power for power in range(int(math.log2(rows)) + 1)} | {rows, predicted})


def other_sizes(shape: KVShape, name: str, rows: int, repeats: int = REPEATS) -> Iterator[LabEvent]:
    """Experiment 3: time and memory around the predicted r* for the shapes of other models; only
    the KV part.
    """
    shapes = {name: shape} | {
        other: KVShape(layers, heads, size, shape.dtype, shape.device, group)
        for other, (layers, heads, size, group) in SIZES.items()
    }
    counter = Counter(len(shapes) * (1 + (repeats + 1) * 5))
    for model, model_shape in shapes.items():
        costs = yield from calibrate_first(Calibrator(model_shape, rows), counter)
        predicted = in_whole_blocks(best_r(costs, CacheWorkload(rows)))
        about: Values = {"model": model, "predicted": predicted, "rows": rows}
        settings = [(r, True) for r in _sizes_grid(rows, predicted)]
        for number in range(repeats + 1):
            words = f"{model}: {repeat_words(number, repeats)}"
            for event in _time_round(model_shape, rows, settings, number, words, counter):
                yield Row("sizes", about | _costs(event)) if isinstance(event, Row) else event


def _sizes_grid(rows: int, predicted: int) -> list[int]:
    return sorted({1, max(1, predicted // 3), predicted, min(rows, 3 * predicted), rows})


def _costs(growth: Row) -> Values:
    row = growth.values
    kept: Values = {name: row[name] for name in ("r", "bytes_used", "peak_bytes")}
    return kept | {"overhead": row["growth"] + row["spare"]}


def _time_round(
    shape: KVShape,
    rows: int,
    settings: Sequence[tuple[int, bool]],
    number: int,
    words: str,
    counter: Counter,
) -> Iterator[Progressed | Row]:
    """Time the writing of `rows` rows once at each setting: r, and whether attention is padded.

    The order is random in each round. Round 0 is the warm-up, without rows of results. Yields
    progress, then one row per setting, in the given order.
    """
    timed: dict[tuple[int, bool], Row] = {}
    for r, padded in random.Random(number).sample(settings, len(settings)):
        for event in _time_setting(shape, rows, r, padded, bool(number % 2)):
            if isinstance(event, Row):
                timed[r, padded] = event
            else:
                yield counter.at(f"{words}: {event}")
        counter.done += 1
    yield from (timed[setting] for setting in settings) if number else ()


def _time_setting(
    shape: KVShape, rows: int, r: int, padded: bool, odd: bool
) -> Iterator[str | Row]:
    """Write the rows once; yield progress, and the result at the end.

    `odd`: run odd rows first without the spare rows; otherwise even rows.
    """
    run, cache = attention_alone(shape), prefilled_tree(shape, 0, r, padded=padded)
    yield f"r = {r}"
    steps: list[StepTime] = []
    paused = now(shape.device)
    for row in range(rows):
        steps.append(
            time_spare_rows(run, cache, 1, sliced_first=bool((row + odd) % 2))
            if padded
            else time_step(run, cache, [1])
        )
        if now(shape.device) - paused > PAUSE_SECONDS:
            yield f"r = {r}, {len(steps)} rows of {rows}"
            paused = now(shape.device)
    growths = [index for index, step in enumerate(steps) if step.grew]
    values: Values = {"rows": rows, "r": r, "padded": padded}
    for part in ("growth", "rest", "spare"):
        values[part] = sum(getattr(step, part) for step in steps)
    values |= {"growths": len(growths), "rows_copied": sum(growths)}
    values |= {"bytes_used": rows * shape.row_bytes, "peak_bytes": cache.usage([1]).peak_bytes}
    yield Row("growth", values)
