"""The greedy probe of a prompt: the entropies from which a rank threshold is taken."""

from collections.abc import Generator
from dataclasses import replace
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from eab.engine.build import build
from eab.engine.caches.prefixed_tree import Prefixes
from eab.engine.generation import Generation
from eab.engine.models.base import LanguageModel
from eab.engine.models.stopping import Stopped
from eab.engine.request import Request
from eab.run.events import Event, Predicted, Probed, TokensAppended
from eab.run.threshold import probe_config

_REMEMBERED: Final = 64  # probes per model

_Probes: TypeAlias = dict[Request, tuple[Probed, ...]]
PROBED: Final[WeakKeyDictionary[LanguageModel, _Probes]] = WeakKeyDictionary()


def probe(
    model: LanguageModel, request: Request, events: list[Event], prefixes: Prefixes | None = None
) -> Generator[Generation, list[Event], list[float]]:
    """The entropies (nats) of a few greedy steps, computed once per model, prompt and settings.
    Logits processors, and a model that was given loaded, may change between two runs, so with them
    every run has its own probe.
    """
    greedy = replace(request, config=probe_config(request.config), policy=None, logits_reader=None)
    if greedy.logits_processors or getattr(model, "is_given", False):
        return [event.entropy for event in (yield from _continue(model, greedy, events, prefixes))]
    known = PROBED.setdefault(model, {})
    if greedy in known:
        events += known[greedy]
    else:
        known[greedy] = tuple((yield from _continue(model, greedy, events, prefixes)))
        if len(known) > _REMEMBERED:
            del known[next(iter(known))]
    return [event.entropy for event in known[greedy]]


def _continue(
    model: LanguageModel, request: Request, events: list[Event], prefixes: Prefixes | None
) -> Generator[Generation, list[Event], list[Probed]]:
    """Do the greedy run; meanwhile, the reader of `events` may empty the list."""
    probed: list[Probed] = []
    generation = build(model, request, threshold_nats=0.0, prefixes=prefixes)
    try:
        while generation.live:
            entropy = 0.0
            for event in (yield generation):
                if isinstance(event, Predicted):
                    entropy = event.predictions[0].entropy or 0.0
                elif isinstance(event, TokensAppended):
                    [token] = event.tokens
                    text = "" if token.special else token.text
                    probed.append(Probed(event.step, entropy, text))
                    events.append(probed[-1])
    except Stopped:
        generation.keep_texts()
        raise
    finally:
        generation.cache.let_go()
    return probed
