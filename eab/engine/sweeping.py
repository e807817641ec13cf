"""A sweep: one request under several settings that change time and bytes, but not the tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eab.analysis.sweep import Settings
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.events import Event
from eab.models.base import LanguageModel

WARM_UP_TOKENS = 2


def run_sweep(
    model: LanguageModel,
    request: Request,
    variants: Mapping[str, Settings],
    draft: LanguageModel | None = None,
) -> Iterator[Event]:
    """Make one run per variant, one after the other.

    The first forward passes of a process, and of a draft model, are slow. So that the first variant
    does not pay for that, two short runs come first, without events. A run that exceeds its memory
    limit ends with RunEnded("failed"), and the next one begins. To stop, stop iterating.

    Args:
        model: The model that generates.
        request: Prompt and settings.
        variants: For each variant its name and the settings that it changes.
        draft: The draft model, if a variant uses the drafter `model`.

    Yields:
        The events of all runs; `eab.analysis.sweep.Sweep` folds them.

    Raises:
        PromptError, ConfigError, ModelError: See `generate`.
    """
    requests = [
        replace(request, config=replace(request.config, **settings))
        for settings in variants.values()
    ]
    for one in (requests[0], requests[-1]):
        for _ in generate(model, _shortened(one), draft):
            pass
    for one in requests:
        yield from generate(model, one, draft)


def _shortened(request: Request) -> Request:
    new_tokens = min(WARM_UP_TOKENS, request.config.max_new_tokens)
    return replace(request, config=replace(request.config, max_new_tokens=new_tokens))
