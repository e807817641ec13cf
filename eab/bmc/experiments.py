"""The measurements around BMC, run for real on this machine: generators of points with progress
between them.

Stop by no longer iterating. The first three ask what the paper's experiments ask (copying against
computing, sensitivity to r, end to end under rejected drafts), the last two what is open: other
model sizes, and memory. Nothing here is the paper's number.
"""

import math
import random
import statistics
from collections.abc import Generator, Iterator, Sequence
from typing import Final, assert_never

import torch

from eab.bmc.machine import machine
from eab.bmc.results import (
    Began,
    Experiment,
    LengthTimed,
    MemoryHeld,
    RejectionTimed,
    ReportEvent,
    RTimed,
    SizeTimed,
    overheads,
)
from eab.caches.calibration import calibrate
from eab.caches.deep_copy import DeepCopyCache
from eab.caches.growth import Calibration, Workload, best_r
from eab.caches.shape import KVShape
from eab.caches.timing import (
    NO_LIMIT,
    Reader,
    StepTime,
    TimedTree,
    attention_reader,
    now,
    timed_pair,
    timed_step,
    tree_with,
)
from eab.events import Progressed, RunEnded
from eab.models.base import LanguageModel

PAUSE_SECONDS: Final = (
    0.2  # between two pauses, about; a step is not interrupted, nor a round of the calibration
)
LENGTHS: Final = (64, 128, 256, 512, 1024, 2048, 4096)
REPEATS: Final = 9
ROUNDS: Final = 3
DRAFTS: Final = 4
REJECTIONS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
MEMORY_R: Final = (1, 4, 16, 64, 256, 1024)
MEMORY_ROWS: Final = (128, 256, 512, 1024)
# layers, KV heads, head size, query heads per KV head
SIZES: Final = {
    "GPT-2 124M": (12, 12, 64, 1),
    "SmolLM2-135M": (30, 3, 64, 3),
    "Qwen2.5-0.5B": (24, 2, 64, 7),
}
SIZE_ROWS: Final = 256


def model_reader(model: LanguageModel) -> Reader:
    """The whole step: the model's forward pass through the cache."""
    return lambda one: model.forward([one])


def measure(experiment: Experiment, model: LanguageModel, rows: int) -> Iterator[ReportEvent]:
    """The events of one experiment with this model; eab.bmc.results.Report collects them. rows:
    how long the runs are."""
    card = model.card
    yield Began(experiment, card.name, card.dtype, card.row_bytes, machine())
    match experiment:
        case "lengths":
            yield from copy_against_compute(model)
        case "growth":
            yield from sensitivity_to_r(model.kv_shape, rows)
        case "rejection":
            yield from rejected_drafts(model, rows)
        case "sizes":
            yield from other_sizes(model.kv_shape, card.name)
        case "memory":
            yield from memory(model.kv_shape)
        case _:
            assert_never(experiment)
    yield RunEnded(0, "finished")


def copy_against_compute(
    model: LanguageModel, lengths: Sequence[int] = LENGTHS
) -> Iterator[ReportEvent]:
    """Experiment 1: at r = 1 every step allocates and copies; how long, beside attention and the
    whole step, by length."""
    shape = model.kv_shape
    for number, rows in enumerate(lengths):
        yield Progressed(number / len(lengths), f"{rows} rows in use")
        alone = _steps(attention_reader(shape), shape, rows)
        yield Progressed((number + 0.5) / len(lengths), f"{rows} rows in use, with the model")
        step = None
        if rows + REPEATS <= model.context:
            step = _median(found.seconds for found in _steps(model_reader(model), shape, rows))
        growth, attention = (
            _median(found.growth for found in alone),
            _median(found.rest for found in alone),
        )
        yield LengthTimed(rows, growth, attention, step)


def sensitivity_to_r(shape: KVShape, rows: int, rounds: int = ROUNDS) -> Iterator[ReportEvent]:
    """Experiment 2: the KV part of writing `rows` rows at many r, padded, beside what the cost
    model predicts; and sliced."""
    fitted = yield from _calibration(shape, rows, share=0.1)
    work = Workload(rows)
    tried = [(r, True) for r in r_grid(rows, best_r(fitted.costs, work))] + [
        (r, False) for r in (1, 16, rows)
    ]
    for number, point in _interleaved(shape, work, tried, rounds):
        yield point if isinstance(point, RTimed) else Progressed(0.1 + 0.9 * number, point)


def r_grid(rows: int, predicted: int) -> list[int]:
    """Powers of two up to all rows at once, and the predicted r*."""
    return sorted({2**power for power in range(int(math.log2(rows)) + 1)} | {rows, predicted})


def rejected_drafts(model: LanguageModel, rows: int, seed: int = 0) -> Iterator[ReportEvent]:
    """Experiment 3: DRAFTS drafts are written behind the text and verified in one pass; the
    rejected ones are given back.

    Which drafts are rejected is drawn at the given rate (simulated); making room, the model's pass
    and giving back are measured. Making the drafts is not part of it. All ways take the same
    passes, in turn.
    """
    shape, prompt = model.kv_shape, 16
    rows = min(rows, model.context - prompt - DRAFTS - 1)
    fitted = yield from _calibration(shape, rows, share=0.1)
    for number, rejection in enumerate(REJECTIONS):
        yield from _at_rejection(
            model, rejection, rows, prompt, fitted, random.Random(seed), number / len(REJECTIONS)
        )


def other_sizes(shape: KVShape, name: str, rounds: int = ROUNDS) -> Iterator[ReportEvent]:
    """Open check: is the predicted r* good for other models' shapes? The KV part alone, on random
    numbers.
    """
    shapes = {name: shape} | {
        other: KVShape(layers, heads, size, shape.dtype, shape.device, group)
        for other, (layers, heads, size, group) in SIZES.items()
    }
    for place, (one, found) in enumerate(shapes.items()):
        start, width = place / len(shapes), 1 / len(shapes)
        fitted = yield from _calibration(found, SIZE_ROWS, share=0.3 * width, start=start)
        predicted = best_r(fitted.costs, Workload(SIZE_ROWS))
        grid = sorted(
            {1, max(1, predicted // 3), predicted, min(SIZE_ROWS, 3 * predicted), SIZE_ROWS}
        )
        points: list[RTimed] = []
        for share, point in _interleaved(
            found, Workload(SIZE_ROWS), [(r, True) for r in grid], rounds
        ):
            if isinstance(point, RTimed):
                points.append(point)
            else:
                yield Progressed(start + width * (0.3 + 0.7 * share), f"{one}: {point}")
        yield SizeTimed(
            one, found.row_bytes, SIZE_ROWS, predicted, tuple(overheads(points).items())
        )


def memory(shape: KVShape) -> Iterator[ReportEvent]:
    """Open check: what the spare rows and the growths hold, by r and length. Bytes are measured
    from the tensors.
    """
    for number, r in enumerate(MEMORY_R):
        cache = tree_with(shape, 0, r, padded=True)
        began = now(shape.device)
        for rows in range(1, MEMORY_ROWS[-1] + 1):
            cache.pack([1], [[0]])
            if rows in MEMORY_ROWS:
                kv = cache.usage([1])
                yield MemoryHeld(r, rows, rows * shape.row_bytes, kv.bytes_held, kv.peak_bytes)
            if now(shape.device) - began > PAUSE_SECONDS:
                yield Progressed(
                    (number + rows / MEMORY_ROWS[-1]) / len(MEMORY_R), f"r = {r}: {rows} rows"
                )
                began = now(shape.device)


def _calibration(
    shape: KVShape, rows: int, share: float, start: float = 0.0
) -> Generator[ReportEvent, None, Calibration]:
    """Calibrate as the first part of an experiment."""
    steps = calibrate(shape, rows)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            fitted: Calibration = end.value
            yield fitted
            return fitted
        yield Progressed(start + share * done.share, done.words)


def _steps(reader: Reader, shape: KVShape, rows: int) -> list[StepTime]:
    """Steps at r = 1 with about so many rows in use; the first ones are not counted."""
    cache = tree_with(shape, rows, 1, padded=True)
    return [timed_step(reader, cache, [1]) for _ in range(REPEATS + 2)][2:]


def _interleaved(
    shape: KVShape, work: Workload, tried: Sequence[tuple[int, bool]], rounds: int
) -> Iterator[tuple[float, RTimed | str]]:
    """Go through the work at each (r, padded), in rounds -> shares and words on the way, and a
    point for each at the end.

    Seconds are sums over steps of the step's median over the rounds: a disturbance of one round
    does not count.
    """
    reader = attention_reader(shape)
    found: dict[tuple[int, bool], list[list[StepTime]]] = {each: [] for each in tried}
    counts: dict[tuple[int, bool], tuple[int, int]] = {}
    for number in range(rounds):
        for place, (r, padded) in enumerate(random.Random(number).sample(tried, len(tried))):
            share = (number + place / len(tried)) / rounds
            yield share, f"round {number + 1} of {rounds}: r = {r}"
            cache = tree_with(shape, work.prompt, r, padded=padded)
            steps: list[StepTime] = []
            paused = now(shape.device)
            for index in range(work.rows):
                bare_first = bool((index + number) % 2)
                steps.append(
                    timed_pair(reader, cache, 1, bare_first)
                    if padded
                    else timed_step(reader, cache, [1])
                )
                if now(shape.device) - paused > PAUSE_SECONDS:
                    yield (
                        share,
                        f"round {number + 1} of {rounds}: r = {r}, {len(steps)} rows of {work.rows}",
                    )
                    paused = now(shape.device)
            found[r, padded].append(steps)
            copied = sum(index + work.prompt for index, step in enumerate(steps) if step.grew)
            counts[r, padded] = sum(step.grew for step in steps), copied
    for (r, padded), runs in found.items():
        growth = sum(_median(step.growth for step in steps) for steps in zip(*runs, strict=True))
        rest = sum(_median(step.rest for step in steps) for steps in zip(*runs, strict=True))
        spare = sum(_median(step.spare for step in steps) for steps in zip(*runs, strict=True))
        yield 1.0, RTimed(work, r, padded, growth, rest, spare, *counts[r, padded])


def _at_rejection(
    model: LanguageModel,
    rejection: float,
    rows: int,
    prompt: int,
    fitted: Calibration,
    chance: random.Random,
    share: float,
) -> Iterator[ReportEvent]:
    caches = _ways(model.kv_shape, rejection, rows, prompt, fitted)
    reader, device = model_reader(model), model.kv_shape.device
    growth, rest = dict.fromkeys(caches, 0.0), dict.fromkeys(caches, 0.0)
    lengths, passes, began = dict.fromkeys(caches, 0), dict.fromkeys(caches, 0), now(device)
    while any(length < rows for length in lengths.values()):
        keep = 1 + next((draft for draft in range(DRAFTS) if chance.random() < rejection), DRAFTS)
        for way, (cache, tokens) in caches.items():
            if lengths[way] >= rows:
                continue
            stays = min(keep, tokens, rows - lengths[way])
            step, given_back = _speculate(reader, cache, tokens, prompt + lengths[way] + stays)
            growth[way] += step.growth + given_back
            rest[way] += step.rest
            lengths[way] += stays
            passes[way] += 1
        if now(device) - began > PAUSE_SECONDS:
            words = f"{rejection:.0%} rejected: {min(lengths.values())} rows of {rows}"
            yield Progressed(
                0.1 + 0.9 * (share + min(lengths.values()) / rows / len(REJECTIONS)), words
            )
            began = now(device)
    for way, (_, tokens) in caches.items():
        yield RejectionTimed(rejection, way, tokens - 1, passes[way], rows, growth[way], rest[way])


def _ways(
    shape: KVShape, rejection: float, rows: int, prompt: int, fitted: Calibration
) -> dict[str, tuple[TimedTree | DeepCopyCache, int]]:
    """By name: a cache with the prompt, and the tokens of a pass."""
    kept = sum(
        (1 - rejection) ** drafts for drafts in range(DRAFTS + 1)
    )  # expected per pass: Leviathan et al., Eq. 1
    plain = best_r(fitted.costs, Workload(rows, prompt))
    best = best_r(fitted.costs, Workload(rows, prompt, kept, DRAFTS + 1))
    best = max(
        DRAFTS + 1, round(best * kept)
    )  # in rows: a pass writes all its drafts before any is given back
    return {
        "no drafts, r*": (tree_with(shape, prompt, plain, padded=True), 1),
        "concatenate and crop": (_concatenating(shape, prompt), DRAFTS + 1),
        "r = 1": (tree_with(shape, prompt, 1, padded=True), DRAFTS + 1),
        "r*": (tree_with(shape, prompt, best, padded=True), DRAFTS + 1),
        "all rows up front": (tree_with(shape, prompt, rows + DRAFTS + 1, padded=True), DRAFTS + 1),
    }


def _speculate(
    reader: Reader, cache: TimedTree | DeepCopyCache, tokens: int, length: int
) -> tuple[StepTime, float]:
    """One pass over so many tokens, of which those from position `length` on are given back ->
    times of both.
    """
    step = timed_step(reader, cache, [1], tokens)
    start = now(cache.shape.device)
    cache.trim(1, length)
    return step, now(cache.shape.device) - start


@torch.inference_mode()
def _concatenating(shape: KVShape, prompt: int) -> DeepCopyCache:
    """The usual way: torch.cat at every pass, and a copy of what stays if drafts are rejected."""
    cache = DeepCopyCache(shape, NO_LIMIT)
    attend = attention_reader(shape)
    attend(cache.pack([0], [[0] * prompt]))
    cache.fork(0, [1])
    return cache


def _median(values: Iterator[float]) -> float:
    return statistics.median(values)
