"""One prompt under several settings, one run after the other: same seed, same tokens, other time
and bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eab.analysis.sweep import Settings
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.events import Event
from eab.models.base import LanguageModel

WARM_UP_TOKENS = 2


def compare(
    model: LanguageModel,
    prompt: str,
    config: BranchingConfig,
    variants: Mapping[str, Settings],
    draft: LanguageModel | None = None,
) -> Iterator[Event]:
    """The events of one run per variant, one run after the other; eab.analysis.sweep.Sweep
    folds them.

    Stop by no longer iterating. Short runs go before, unseen: the first passes of a process, and of
    a draft model, are slow, and the first variants should not pay for all. Raises PromptError
    before the first event. A run that outgrows its memory ends with RunEnded("failed"), and the
    next one begins.
    """
    configs = [replace(config, **settings) for settings in variants.values()]
    for one in (configs[0], configs[-1]):
        short = replace(one, max_new_tokens=min(WARM_UP_TOKENS, config.max_new_tokens))
        for _ in generate(model, prompt, short, draft):
            pass
    for one in configs:
        yield from generate(model, prompt, one, draft)
