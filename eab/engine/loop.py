"""The loop: one forward pass per step for all live paths, of one run or of several.

    for event in generate(model, prompt, config): ...

Stop by no longer iterating. Nothing is printed, nothing global changes, and a cache belongs to one
run.
"""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from eab.config import BranchingConfig
from eab.engine.generation import Generation, prompt_tokens
from eab.errors import MemoryLimitError
from eab.events import Event, Pause, Predicted, Probed, RunEnded, RunStarted, StepTimed
from eab.models.base import LanguageModel

AnyEvent = TypeVar("AnyEvent")
PROBE_STEPS = 64
PROBE_FLOOR = 0.3  # nats: a confident prompt should not fork because its own quantile is low


def generate(
    model: LanguageModel,
    prompt: str,
    config: BranchingConfig,
    draft: LanguageModel | None = None,
    continued: Sequence[int] = (),
) -> Iterator[Event]:
    """Generate from the prompt, branching as the config says.

    continued: token ids that stand after the prompt's own, taken from another run (see
    `Run.continuation`). draft: the model that guesses if the drafter is `model`.

    Raises PromptError, ConfigError or ModelError before the first event. A run that outgrows its
    memory ends with RunEnded("failed").
    """
    tokens = prompt_tokens(model, prompt, config, continued)
    steps = 0
    try:
        threshold = yield from _threshold_in_nats(model, prompt, tokens, config)
        generation = Generation(model, prompt, tokens, config, threshold, len(continued), draft)
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
    """One forward pass for everything that waits in these runs, then each run's decisions -> events
    per run.
    """
    start = time.perf_counter()
    packed = [generation.pack() for generation in generations]
    passes = [one_pass for one_pass, _ in packed]
    logits = model.forward(passes)
    events = [growths for _, growths in packed]
    lines = logits.split([len(one_pass.logits_indices) for one_pass in passes])
    if logits.is_cuda:
        torch.cuda.current_stream(
            logits.device
        ).synchronize()  # or the decisions would seem to take the pass's time
    drafting = [generation.draft_seconds for generation in generations]
    forward_seconds = time.perf_counter() - start - sum(drafting)
    for generation, one_pass, own_logits, own_events, draft_seconds in zip(
        generations, passes, lines, events, drafting, strict=True
    ):
        number, tokens = generation.step, len(one_pass.ids)
        own_events += generation.advance(own_logits, tokens, forward_seconds)
        seconds = time.perf_counter() - start
        own_events.append(StepTimed(number, tokens, seconds, forward_seconds, draft_seconds))
    return events


def until(events: Iterable[AnyEvent], stop: Callable[[], bool]) -> Iterator[AnyEvent | RunEnded]:
    """The same events, of one run, of several in turn, or of a measurement, ended by
    RunEnded("stopped") at the first Pause where `stop()` is true."""
    chosen = 0  # steps that chose tokens; the chunks of a long prompt choose none
    for event in events:
        yield event
        if isinstance(event, Predicted | RunStarted):
            chosen = event.step + 1 if isinstance(event, Predicted) else 0
        if isinstance(event, Pause) and stop():
            yield RunEnded(chosen, "stopped")
            return


def _threshold_in_nats(
    model: LanguageModel, prompt: str, tokens: Sequence[int], config: BranchingConfig
) -> Generator[Event, None, float]:
    """What the config's threshold means for this model and prompt; a quantile needs a greedy
    probe.
    """
    match config.threshold_unit:
        case "nats":
            return config.entropy_threshold
        case "normalised":
            return config.entropy_threshold * math.log(model.card.vocab_size)
        case "quantile":
            entropies = yield from _probe(model, prompt, tokens, config)
            return max(
                PROBE_FLOOR, float(torch.tensor(entropies).quantile(config.entropy_threshold))
            )


def _probe(
    model: LanguageModel, prompt: str, tokens: Sequence[int], config: BranchingConfig
) -> Generator[Event, None, list[float]]:
    """Entropies along the greedy continuation of the prompt."""
    steps = min(PROBE_STEPS, config.max_new_tokens)
    greedy = replace(config, policy="greedy", max_paths=1, max_new_tokens=steps, drafter="none")
    probe = Generation(model, prompt, tokens, greedy, threshold_nats=0.0)
    entropies: list[float] = []
    while probe.live:
        [events] = step(model, [probe])
        for event in events:
            if isinstance(event, Predicted):
                entropies.append(event.entropy)
                yield Probed(event.step, event.entropy)
    return entropies
