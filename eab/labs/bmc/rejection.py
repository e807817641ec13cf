"""The BMC experiment with rejected draft tokens: the cost of each way to store K and V."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

import torch

from eab.caches.calibration import Calibrator
from eab.caches.deep_copy import DeepCopyCache
from eab.caches.growth import CacheWorkload, Calibration, best_r
from eab.caches.shape import KVShape
from eab.caches.timing import (
    NO_LIMIT,
    RunBatch,
    StepTime,
    TimedTreeCache,
    attention_alone,
    now,
    prefilled_tree,
    time_step,
)
from eab.events import Progressed
from eab.labs.bmc.results import RejectionTimed, ReportEvent
from eab.labs.bmc.rounds import PAUSE_SECONDS, REPEATS, calibrate_first, repeat_words, whole_model
from eab.models.base import LanguageModel

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
