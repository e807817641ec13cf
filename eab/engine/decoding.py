"""One run as a coroutine: first the probe's passes, if the threshold is a rank, then its own.

It yields the state whose pending tokens the next pass must compute, and receives the events of that
pass. This lets its caller serve other runs in the same pass.
"""

from collections.abc import Generator
from typing import Final, TypeAlias

from eab.caches.prefixed_tree import Prefixes
from eab.engine.build import build
from eab.engine.generation import Generation
from eab.engine.probe import probe
from eab.engine.request import Request
from eab.errors import MemoryLimitError, ServerError
from eab.events import Event, RunEnded
from eab.models.base import LanguageModel
from eab.models.machine import is_out_of_memory
from eab.models.stopping import Stopped
from eab.run.threshold import threshold_in_nats

Decoding: TypeAlias = Generator[Generation, list[Event], None]

OUT_OF_MEMORY: Final = (
    "this machine has too little memory for the run. Its tokens so far are kept; use fewer paths "
    "or new tokens, or a smaller model"
)


def decode(
    model: LanguageModel,
    request: Request,
    draft: LanguageModel | None,
    events: list[Event],
    prefixes: Prefixes | None = None,
) -> Decoding:
    """Decode a run, pass by pass. The caller throws in a pass's error, or Stopped to end the run.

    Args:
        events: Receives the events of the run, including RunEnded.
        prefixes: The part of the prefix cache that the run may use; None to use none.
    """
    steps, generation = 0, None
    try:
        threshold_nats = yield from _threshold_in_nats(model, request, events, prefixes)
        generation = build(model, request, threshold_nats, draft, prefixes)
        events.append(generation.started)
        while generation.live:
            events += yield generation
            steps = generation.step
    except Stopped:
        if generation is not None:
            generation.keep_texts()
        events.append(RunEnded(steps, "stopped"))
    except (MemoryLimitError, ServerError) as error:
        events.append(_failed(steps, error, str(error)))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        events.append(_failed(steps, error, OUT_OF_MEMORY))
        if model.kv_pool is not None:
            model.kv_pool.clear()
    else:
        events.append(RunEnded(steps, "finished"))
    finally:
        if generation is not None:
            generation.cache.let_go()


def _failed(steps: int, error: Exception, message: str) -> RunEnded:
    # From Python 3.12 on, the traceback refers back to the error through the frames that called
    # this generator. The cycle would keep the run's K and V until the next garbage collection.
    error.__traceback__ = None
    return RunEnded(steps, "failed", message)


def _threshold_in_nats(
    model: LanguageModel, request: Request, events: list[Event], prefixes: Prefixes | None
) -> Generator[Generation, list[Event], float]:
    """The threshold in nats; a rank requires a probe of this prompt, if the policy uses it."""
    is_used = request.policy is not None or request.config.policy in ("fair", "original")
    needed = is_used and request.config.threshold_unit == "rank"
    entropies = (yield from probe(model, request, events, prefixes)) if needed else []
    return threshold_in_nats(request.config, model.card.vocab_size, entropies)
