"""Runs one request under several settings that change time and bytes, but not the tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eab.caches.prefix_cache import PrefixCache
from eab.caches.prefixed_tree import prefix_cache
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.events import Pause, Progressed, RunEnded
from eab.labs.variants.results import (
    PROMPT_REUSED,
    REPEATS,
    RunTimed,
    Settings,
    VariantEvent,
    possible,
    run_timed,
)
from eab.models.base import LanguageModel
from eab.run import RunFold


def run_variants(
    model: LanguageModel,
    request: Request,
    variants: Mapping[str, Settings],
    draft: LanguageModel | None = None,
    repeats: int = REPEATS,
) -> Iterator[VariantEvent]:
    """Run each variant that the model supports, then repeat them alternately to time them.

    The first runs are the warm-up. The repeats alternate, so that a slow moment of the machine
    affects all variants. A run that exceeds its memory limit ends with RunEnded("failed") and is
    not repeated. To stop, stop iterating. `VariantRuns` folds the events.
    """
    requests = {
        name: replace(request, config=replace(request.config, **settings))
        for name, settings in possible(variants, model.card).items()
    }
    # The first run with the tree finds an empty prefix cache and leaves its prompt there.
    prefixes = prefix_cache(model.kv_shape) if PROMPT_REUSED in requests else None
    finished = {}
    for name, asked in requests.items():
        known = prefixes if name in ("tree", PROMPT_REUSED) else None
        for event in event_stream(model, asked, draft, prefixes=known):
            yield event
            if isinstance(event, RunEnded) and event.reason == "finished":
                finished[name] = asked
    turns = [(number, name) for number in range(repeats) for name in finished]
    for done, (number, name) in enumerate(turns):
        words = f"repeat {number + 1} of {repeats}: {name}"
        known = prefixes if name == PROMPT_REUSED else None
        for timed in _timed_run(model, name, finished[name], draft, known):
            yield (
                Progressed((done + timed.share) / len(turns), words)
                if isinstance(timed, Progressed)
                else timed
            )
    yield RunEnded(0, "finished")


def _timed_run(
    model: LanguageModel,
    name: str,
    request: Request,
    draft: LanguageModel | None,
    prefixes: PrefixCache | None,
) -> Iterator[RunTimed | Progressed]:
    fold = RunFold()
    for event in event_stream(model, request, draft, prefixes=prefixes):
        fold.apply(event)
        if isinstance(event, Pause):
            steps = len(fold.run.steps) if fold.run is not None else 0
            yield Progressed(min(1.0, steps / request.config.max_new_tokens), name)
    if fold.run is not None and fold.run.ended is not None and fold.run.ended.reason == "finished":
        yield run_timed(name, fold.run)
