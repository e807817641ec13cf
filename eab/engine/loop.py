"""The decoding loop: one forward pass per step for all live paths, of one run or of several.

    for event in generate(model, Request("Once upon a time", config)): ...

To stop, stop iterating. Nothing is printed, nothing global changes, and each run has its own cache.
"""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from eab.engine.build import build
from eab.engine.generation import Generation
from eab.engine.request import Request
from eab.errors import MemoryLimitError
from eab.events import Event, Pause, Predicted, Probed, RunEnded, RunStarted, StepTimed
from eab.models.base import LanguageModel

AnyEvent = TypeVar("AnyEvent")
PROBE_STEPS = 64
PROBE_FLOOR = 0.3  # nats; without it a confident prompt would fork at its own low quantile


def generate(
    model: LanguageModel, request: Request, draft: LanguageModel | None = None
) -> Iterator[Event]:
    """Continue the prompt, and branch as the settings say.

    Args:
        model: The model that generates.
        request: Prompt and settings.
        draft: The draft model, if the drafter is `model`.

    Yields:
        The events of the run as they happen. A run that exceeds its memory limit ends with
        RunEnded("failed").

    Raises:
        PromptError, ConfigError, ModelError: See `eab.engine.build.build`.
    """
    steps = 0
    try:
        threshold_nats = yield from _threshold_in_nats(model, request)
        generation = build(model, request, threshold_nats, draft)
        yield generation.started
        while generation.live:
            [events] = step(model, [generation])
            yield from events
            steps = generation.step
    except (MemoryLimitError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        yield RunEnded(steps, "failed", str(error))
    else:
        yield RunEnded(steps, "finished")


def _is_out_of_memory(error: Exception) -> bool:
    """Our own limit, CUDA's error, or the CPU allocator's, which is a plain RuntimeError."""
    return isinstance(
        error, MemoryLimitError | torch.OutOfMemoryError
    ) or "can't allocate memory" in str(error)


@torch.inference_mode()
def step(model: LanguageModel, generations: Sequence[Generation]) -> list[list[Event]]:
    """One forward pass for the pending tokens of these runs, then each run's decisions.

    Returns:
        The events of each run.
    """
    start = time.perf_counter()
    prepared = [generation.prepare() for generation in generations]
    batches = [batch for batch, _ in prepared]
    logits = model.forward(batches)
    own_logits = logits.split([len(batch.logits_indices) for batch in batches])
    if logits.is_cuda:  # so that GPU time is not attributed to the decisions
        torch.cuda.current_stream(logits.device).synchronize()
    draft_seconds = [generation.draft_seconds for generation in generations]
    forward_seconds = time.perf_counter() - start - sum(draft_seconds)
    found: list[list[Event]] = []
    for index, (generation, (batch, events)) in enumerate(zip(generations, prepared, strict=True)):
        number, tokens = generation.step, len(batch.ids)
        events += generation.advance(own_logits[index], tokens, forward_seconds)
        seconds = time.perf_counter() - start
        events.append(StepTimed(number, tokens, seconds, forward_seconds, draft_seconds[index]))
        found.append(events)
    return found


def stop_when(
    events: Iterable[AnyEvent], requested: Callable[[], bool]
) -> Iterator[AnyEvent | RunEnded]:
    """The same events, ended early where the caller requests it.

    Args:
        events: Those of a run, of several runs in turn, or of a measurement.
        requested: Whether to stop; asked at every Pause.

    Yields:
        The events; after the first Pause where `requested()` is true, RunEnded("stopped").
    """
    steps = 0  # those that chose tokens; the chunks of a long prompt choose none
    for event in events:
        yield event
        if isinstance(event, Predicted | RunStarted):
            steps = event.step + 1 if isinstance(event, Predicted) else 0
        if isinstance(event, Pause) and requested():
            yield RunEnded(steps, "stopped")
            return


def _threshold_in_nats(model: LanguageModel, request: Request) -> Generator[Event, None, float]:
    """The threshold of the settings in nats, for this model and prompt; a quantile needs a probe.

    Yields:
        The events of the probe.
    """
    threshold = request.config.entropy_threshold
    match request.config.threshold_unit:
        case "nats":
            return threshold
        case "normalised":
            return threshold * math.log(model.card.vocab_size)
        case "quantile":
            entropies = yield from _probe(model, request)
            return max(PROBE_FLOOR, float(torch.tensor(entropies).quantile(threshold)))


def _probe(model: LanguageModel, request: Request) -> Generator[Event, None, list[float]]:
    """Entropies (nats) along the greedy continuation of the prompt."""
    steps = min(PROBE_STEPS, request.config.max_new_tokens)
    greedy = replace(
        request.config, policy="greedy", max_paths=1, max_new_tokens=steps, drafter="none"
    )
    probe = build(model, replace(request, config=greedy), threshold_nats=0.0)
    entropies: list[float] = []
    while probe.live:
        [events] = step(model, [probe])
        for event in events:
            if isinstance(event, Predicted):
                entropies.append(event.entropy)
                yield Probed(event.step, event.entropy)
    return entropies
