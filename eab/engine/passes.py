"""The passes of one run, one after the other: those of the probe, if the threshold is a quantile,
then its own.

A coroutine, so that whoever serves the run may serve others in the same pass: it yields the state
whose pending tokens the next pass must compute, and is sent the events of that pass.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import torch

from eab.config import BranchingConfig
from eab.engine.build import build
from eab.engine.generation import Generation
from eab.engine.request import Request
from eab.errors import MemoryLimitError, ServerError
from eab.events import Event, Predicted, Probed, RunEnded
from eab.models.base import LanguageModel, Stopped
from eab.models.out_of_memory import is_out_of_memory

Passes: TypeAlias = Generator[Generation, list[Event], None]

OUT_OF_MEMORY: Final = (
    "the memory of this machine does not suffice for the run. What it had is kept; use fewer paths "
    "or new tokens, or a smaller model"
)
PROBE_STEPS = 64
PROBE_FLOOR = 0.3  # nats; without it a confident prompt would fork at its own low quantile


def passes(
    model: LanguageModel, request: Request, draft: LanguageModel | None, events: list[Event]
) -> Passes:
    """All passes of a run. An error in a pass is thrown in, or Stopped to end the run.

    Args:
        model: The model that generates.
        request: Prompt and settings.
        draft: The draft model, if the drafter is `model`.
        events: Gets the events of the run, with its RunEnded.

    Raises:
        PromptError, ConfigError, ModelError: See `eab.engine.build.build`.
    """
    steps = 0
    try:
        threshold_nats = yield from _threshold_in_nats(model, request, events)
        generation = build(model, request, threshold_nats, draft)
        events.append(generation.started)
        while generation.live:
            events += yield generation
            steps = generation.step
    except Stopped:
        events.append(RunEnded(steps, "stopped"))
    except (MemoryLimitError, ServerError) as error:
        events.append(RunEnded(steps, "failed", str(error)))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        events.append(RunEnded(steps, "failed", OUT_OF_MEMORY))
    else:
        events.append(RunEnded(steps, "finished"))


def _threshold_in_nats(
    model: LanguageModel, request: Request, events: list[Event]
) -> Generator[Generation, list[Event], float]:
    """The threshold in nats; a quantile needs a probe with this prompt."""
    is_quantile = request.config.threshold_unit == "quantile"
    entropies = (yield from _probe(model, request, events)) if is_quantile else []
    return threshold_in_nats(request.config, model.card.vocab_size, entropies)


def threshold_in_nats(
    config: BranchingConfig, vocab_size: int, entropies: Sequence[float] = ()
) -> float:
    """The threshold of the settings in nats.

    Args:
        config: The settings.
        vocab_size: How many tokens the model can predict.
        entropies: Those of the greedy probe (nats), if the threshold is a quantile of them.
    """
    match config.threshold_unit:
        case "nats":
            return config.entropy_threshold
        case "normalised":
            return config.entropy_threshold * math.log(vocab_size)
        case "quantile":
            quantile = torch.tensor(entropies).quantile(config.entropy_threshold)
            return max(PROBE_FLOOR, float(quantile))


def _probe(
    model: LanguageModel, request: Request, events: list[Event]
) -> Generator[Generation, list[Event], list[float]]:
    """Entropies (nats) along the greedy continuation of the prompt."""
    steps = min(PROBE_STEPS, request.config.max_new_tokens)
    greedy = replace(
        request.config, policy="greedy", max_paths=1, max_new_tokens=steps, drafter="none"
    )
    probe = build(model, replace(request, config=greedy), threshold_nats=0.0)
    entropies: list[float] = []
    while probe.live:
        for event in (yield probe):
            if isinstance(event, Predicted):
                entropies.append(event.entropy)
                events.append(Probed(event.step, event.entropy))
    return entropies
