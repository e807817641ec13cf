"""Runs one request under several settings that change time and bytes, but not the tokens."""

from collections.abc import Iterator
from dataclasses import replace

from eab.engine.caches.prefix_cache import prefix_cache
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.machine import describe_machine
from eab.engine.request import Request
from eab.labs.measurement import Counter, LabBegan, LabEvent, OfRun
from eab.labs.variants import PROMPT_REUSED, REPEATS, Variants, possible, repeat_rows
from eab.run import RunFold
from eab.run.events import Pause, RunEnded


def run_variants(
    model: LanguageModel,
    request: Request,
    lab: str,
    variants: Variants,
    draft: LanguageModel | None = None,
    repeats: int = REPEATS,
) -> Iterator[LabEvent]:
    """Run each variant that the model supports, then repeat them alternately to time them.

    The first runs are the warm-up. The repeats alternate, so that a slow moment of the machine
    affects all variants. A run that exceeds its memory limit ends with RunEnded("failed") and is
    not repeated. To stop, stop iterating.
    """
    chosen = possible(variants, model.card)
    given = tuple({"variant": name, "left_out": name not in chosen} for name in variants)
    machine = describe_machine(model.card.device)
    yield LabBegan(model.card.name, model.card.dtype, machine, lab, {}, given)
    # The first run with the tree finds an empty prefix cache and leaves its prompt there.
    prefixes = prefix_cache(model.kv_shape) if PROMPT_REUSED in chosen else None
    finished = set()
    counter = Counter((1 + repeats) * len(chosen))
    for number, name in counter.rounds(repeats, chosen):
        if number and name not in finished:
            continue
        asked = replace(request, config=replace(request.config, **chosen[name]))
        shared = name == PROMPT_REUSED or (name == "tree" and not number)
        words = f"repeat {number} of {repeats}: {name}" if number else f"first run: {name}"
        fold = RunFold()
        for event in event_stream(model, asked, draft, prefixes=prefixes if shared else None):
            fold.apply(event)
            if not number:
                yield OfRun(name, event)
            if isinstance(event, Pause):
                yield counter.at(words, _share(fold, asked))
        if fold.run is not None and fold.ended is not None and fold.ended.complete:
            finished.add(name)
            yield from repeat_rows(name, number, fold.run) if number else ()
    yield RunEnded(0, "finished")


def _share(fold: RunFold, asked: Request) -> float:
    steps = len(fold.run.steps) if fold.run is not None else 0
    return min(1.0, steps / asked.config.max_new_tokens)
