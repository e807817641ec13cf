"""The BMC measurements: generators of points, with progress between them.

A point is one repeat. The settings of an experiment alternate, round by round; the first round is a
warm-up without points. To stop a measurement, stop iterating.

The first three experiments repeat questions of the paper; the last two are about other models and
memory. No number is taken from the paper.
"""

import math
import random
from collections.abc import Generator, Iterator, Sequence
from typing import Final, assert_never

import torch

from eab.caches.baselines import DeepCopyCache
from eab.caches.growth import CacheWorkload, Calibration, best_r, in_whole_blocks
from eab.caches.shape import KVShape
from eab.caches.timing import (
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
from eab.events import Progressed, RunEnded
from eab.labs.bmc.results import (
    Experiment,
    ExperimentBegan,
    LengthTimed,
    MemoryHeld,
    RejectionTimed,
    ReportEvent,
    RTimed,
    SizeTimed,
)
from eab.models.base import LanguageModel, refuse_own_memory
from eab.models.machine import describe_machine
from eab.timing import MIN_REPEATS

# Approximate time between pauses; a step or calibration round is never interrupted.
PAUSE_SECONDS: Final = 0.2
REPEATS: Final = MIN_REPEATS


def whole_model(model: LanguageModel) -> RunBatch:
    """A function that runs the whole step: the model's forward pass through the cache."""
    return lambda batch: model.forward([batch])


def repeat_words(number: int, repeats: int) -> str:
    """The name of this round; number 0 is the warm-up."""
    return f"repeat {number} of {repeats}" if number else "warm-up"


def calibrate_first(
    calibrator: Calibrator, share: float, start: float = 0.0
) -> Generator[ReportEvent, None, Calibration]:
    """Calibrate before an experiment, reporting a `share` of its progress from `start` on."""
    steps = calibrate(calibrator)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            calibration: Calibration = end.value
            yield calibration
            return calibration
        yield Progressed(start + share * done.share, done.words)


DRAFTS: Final = 4  # draft tokens per forward pass
REJECTIONS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
PROMPT_ROWS: Final = 16


def rejected_drafts(
    model: LanguageModel,
    rows: int,
    repeats: int = REPEATS,
    rejections: Sequence[float] = REJECTIONS,
    seed: int = 0,
) -> Iterator[ReportEvent]:
    """Experiment 3: verify DRAFTS draft tokens in one forward pass, and trim the rejected ones.

    Rejections are drawn at a given rate. The times of growing, of the model's pass and of trimming
    are measured; drafting is not. The ways alternate and process the same numbers of tokens.
    """
    rows = min(rows, model.context - PROMPT_ROWS - DRAFTS - 1)
    calibration = yield from calibrate_first(Calibrator(model.kv_shape, rows), share=0.1)
    for number in range(repeats + 1):
        points: list[RejectionTimed] = []
        for index, rejection in enumerate(rejections):
            start = (number + index / len(rejections)) / (repeats + 1)
            caches = _caches_by_way(model.kv_shape, rejection, rows, calibration)
            rng = random.Random(seed)
            for event in _time_rejection(model, rejection, rows, caches, rng):
                if isinstance(event, RejectionTimed):
                    points.append(event)
                    continue
                share = start + event.share / len(rejections) / (repeats + 1)
                words = f"{repeat_words(number, repeats)}: {event.words}"
                yield Progressed(0.1 + 0.9 * share, words)
        yield from points if number else ()


def _time_rejection(
    model: LanguageModel,
    rejection: float,
    rows: int,
    caches: dict[str, tuple[TimedTreeCache | DeepCopyCache, int]],
    rng: random.Random,
) -> Iterator[Progressed | RejectionTimed]:
    """Time all ways at one rejection rate; yield progress, and one point per way at the end."""
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
            words = f"{rejection:.0%} rejected: {least} rows of {rows}"
            yield Progressed(least / rows, words)
            paused = now(device)
    for way, (_, tokens) in caches.items():
        yield RejectionTimed(rejection, way, tokens - 1, passes[way], rows, growth[way], rest[way])


def _caches_by_way(
    shape: KVShape, rejection: float, rows: int, calibration: Calibration
) -> dict[str, tuple[TimedTreeCache | DeepCopyCache, int]]:
    """For each way, a cache that holds the prompt, and its tokens per forward pass."""
    prompt, verified, costs = PROMPT_ROWS, DRAFTS + 1, calibration.costs
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
        "concatenate and crop": (_concatenating_cache(shape, prompt), verified),
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


LENGTHS: Final = (64, 128, 256, 512, 1024, 2048, 4096)
STEP_REPEATS: Final = 15  # for single steps, which are short
MEMORY_R: Final = (1, 4, 16, 64, 256, 1024)
MEMORY_ROWS: Final = (128, 256, 512, 1024)
# layers, KV heads, head size, query heads per KV head
SIZES: Final = {
    "GPT-2 124M": (12, 12, 64, 1),
    "SmolLM2-135M": (30, 3, 64, 3),
    "Qwen2.5-0.5B": (24, 2, 64, 7),
}
SIZE_ROWS: Final = 256


def measure(
    experiment: Experiment, model: LanguageModel, rows: int, repeats: int = REPEATS
) -> Iterator[ReportEvent]:
    """Run one experiment; growth, rejection and sizes have `repeats` repeats after a warm-up."""
    refuse_own_memory(model)
    card = model.card
    yield ExperimentBegan(
        card.name, card.dtype, describe_machine(card.device), experiment, card.row_bytes
    )
    match experiment:
        case "lengths":
            yield from copy_against_compute(model)
        case "growth":
            yield from sensitivity_to_r(model.kv_shape, rows, repeats)
        case "rejection":
            yield from rejected_drafts(model, rows, repeats)
        case "sizes":
            yield from other_sizes(model.kv_shape, card.name, repeats)
        case "memory":
            yield from memory(model.kv_shape)
        case _:
            assert_never(experiment)
    yield RunEnded(0, "finished")


def copy_against_compute(
    model: LanguageModel, lengths: Sequence[int] = LENGTHS, repeats: int = STEP_REPEATS
) -> Iterator[ReportEvent]:
    """Experiment 1: times of allocating and copying at r = 1, attention and the step, by length."""
    shape, rounds = model.kv_shape, repeats + 1
    alone, whole = attention_alone(shape), whole_model(model)
    caches = {rows: prefilled_tree(shape, rows, 1, padded=True) for rows in lengths}
    with_model = {
        rows: prefilled_tree(shape, rows, 1, padded=True)
        for rows in lengths
        if rows + rounds <= model.context
    }
    for number in range(rounds):
        for index, (rows, cache) in enumerate(caches.items()):
            words = f"{repeat_words(number, repeats)}: {rows} rows in use"
            yield Progressed((number + index / len(caches)) / rounds, words)
            kv = time_step(alone, cache, [1])
            step = time_step(whole, with_model[rows], [1]).seconds if rows in with_model else None
            if number:
                yield LengthTimed(rows, kv.growth, kv.rest, step)


def sensitivity_to_r(shape: KVShape, rows: int, repeats: int = REPEATS) -> Iterator[ReportEvent]:
    """Experiment 2: write `rows` rows at many r with padded attention, at a few r with sliced.

    A calibration before the runs predicts r*.
    """
    work = CacheWorkload(rows)
    calibration = yield from calibrate_first(Calibrator(shape, rows), share=0.1)
    predicted = in_whole_blocks(best_r(calibration.costs, work))
    settings = [(r, True) for r in r_grid(rows, predicted)] + [(r, False) for r in (1, 16, rows)]
    for number in range(repeats + 1):
        for event in _time_round(shape, work, settings, number, repeats):
            if isinstance(event, Progressed):
                event = Progressed(0.1 + 0.9 * event.share, event.words)
            yield event


def r_grid(rows: int, predicted: int) -> list[int]:
    """Powers of two up to `rows`, plus `rows` itself and the predicted r*."""
    return sorted({2**power for power in range(int(math.log2(rows)) + 1)} | {rows, predicted})


def other_sizes(shape: KVShape, name: str, repeats: int = REPEATS) -> Iterator[ReportEvent]:
    """Open question 1: the predicted r* for the shapes of other models; only the KV part."""
    shapes = {name: shape} | {
        other: KVShape(layers, heads, size, shape.dtype, shape.device, group)
        for other, (layers, heads, size, group) in SIZES.items()
    }
    for index, (model, model_shape) in enumerate(shapes.items()):
        start, width = index / len(shapes), 1 / len(shapes)
        calibration = yield from calibrate_first(
            Calibrator(model_shape, SIZE_ROWS), share=0.3 * width, start=start
        )
        work = CacheWorkload(SIZE_ROWS)
        predicted = in_whole_blocks(best_r(calibration.costs, work))
        settings = [(r, True) for r in _sizes_grid(predicted)]
        for number in range(repeats + 1):
            points: list[RTimed] = []
            for event in _time_round(model_shape, work, settings, number, repeats):
                if isinstance(event, RTimed):
                    points.append(event)
                else:
                    share = start + width * (0.3 + 0.7 * event.share)
                    yield Progressed(share, f"{model}: {event.words}")
            if points:
                measured = tuple((point.r, point.overhead) for point in points)
                yield SizeTimed(model, model_shape.row_bytes, SIZE_ROWS, predicted, measured)


def _sizes_grid(predicted: int) -> list[int]:
    return sorted({1, max(1, predicted // 3), predicted, min(SIZE_ROWS, 3 * predicted), SIZE_ROWS})


def memory(shape: KVShape) -> Iterator[ReportEvent]:
    """Open question 2: bytes of the tensors (measured), by r and length."""
    for number, r in enumerate(MEMORY_R):
        cache = prefilled_tree(shape, 0, r, padded=True)
        began = now(shape.device)
        for rows in range(1, MEMORY_ROWS[-1] + 1):
            cache.prepare([1], [[0]])
            if rows in MEMORY_ROWS:
                kv = cache.usage([1])
                yield MemoryHeld(r, rows, rows * shape.row_bytes, kv.bytes_held, kv.peak_bytes)
            if now(shape.device) - began > PAUSE_SECONDS:
                yield Progressed(
                    (number + rows / MEMORY_ROWS[-1]) / len(MEMORY_R), f"r = {r}: {rows} rows"
                )
                began = now(shape.device)


def _time_round(
    shape: KVShape,
    work: CacheWorkload,
    settings: Sequence[tuple[int, bool]],
    number: int,
    repeats: int,
) -> Iterator[Progressed | RTimed]:
    """Time the workload once at each setting, a pair of r and whether attention is padded.

    The order is random in each round. Round 0 is the warm-up, without points; `repeats` rounds
    follow. Yields progress, then one point per setting, in the given order.
    """
    timed: dict[tuple[int, bool], RTimed] = {}
    shuffled = random.Random(number).sample(settings, len(settings))
    for index, (r, padded) in enumerate(shuffled):
        share = (number + index / len(settings)) / (repeats + 1)
        for event in _time_setting(shape, work, r, padded, bool(number % 2)):
            if isinstance(event, RTimed):
                timed[r, padded] = event
            else:
                yield Progressed(share, f"{repeat_words(number, repeats)}: {event}")
    yield from (timed[setting] for setting in settings) if number else ()


def _time_setting(
    shape: KVShape, work: CacheWorkload, r: int, padded: bool, odd: bool
) -> Iterator[str | RTimed]:
    """Write the rows once; yield progress, and the point at the end.

    `odd`: run odd rows first without the spare rows; otherwise even rows.
    """
    run, cache = attention_alone(shape), prefilled_tree(shape, work.prompt, r, padded=padded)
    yield f"r = {r}"
    steps: list[StepTime] = []
    paused = now(shape.device)
    for row in range(work.rows):
        steps.append(
            time_spare_rows(run, cache, 1, sliced_first=bool((row + odd) % 2))
            if padded
            else time_step(run, cache, [1])
        )
        if now(shape.device) - paused > PAUSE_SECONDS:
            yield f"r = {r}, {len(steps)} rows of {work.rows}"
            paused = now(shape.device)
    growths = [work.prompt + index for index, step in enumerate(steps) if step.grew]
    growth, rest, spare = (
        sum(getattr(step, part) for step in steps) for part in ("growth", "rest", "spare")
    )
    yield RTimed(work, r, padded, growth, rest, spare, len(growths), sum(growths))
