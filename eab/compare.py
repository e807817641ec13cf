"""One prompt through several caches, one run after the other: same seed, same tokens, other time and bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eab.comparison import CACHES
from eab.config import BranchingConfig, CacheName
from eab.engine import generate
from eab.events import Event
from eab.models.base import LanguageModel

WARM_UP_TOKENS = 2


def compare(
    model: LanguageModel, prompt: str, config: BranchingConfig, caches: Sequence[CacheName] = CACHES
) -> Iterator[Event]:
    """The events of one run per cache, one run after the other; eab.comparison.Comparison folds them.

    Stop by no longer iterating. A short run goes before, unseen: the first passes of a process are slow, and the first
    cache should not pay for all. Raises PromptError before the first event. A run that outgrows its memory ends with
    RunEnded("failed"), and the next one begins.
    """
    short = replace(config, max_new_tokens=min(WARM_UP_TOKENS, config.max_new_tokens), cache=caches[0])
    for _ in generate(model, prompt, short):
        pass
    for name in caches:
        yield from generate(model, prompt, replace(config, cache=name))
