"""Grow from a token of a run: its text up to there goes on as a run of its own."""

from collections.abc import Iterator, Sequence

from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.errors import ModelError
from eab.events import Event, RunStarted
from eab.models.base import LanguageModel


def grow(
    model: LanguageModel,
    started: RunStarted,
    continued: Sequence[int],
    config: BranchingConfig,
    draft: LanguageModel | None = None,
) -> Iterator[Event]:
    """The events of a run that goes on from the run that `started`; see `Run.continuation`.

    Token ids are taken over as they are, so ModelError unless the model is the one that made them.
    """
    card = started.model
    same = model.card.name == card.name and model.card.vocab_size == card.vocab_size
    if not same or tuple(map(model.text, started.prompt_tokens)) != started.prompt_texts:
        raise ModelError(
            f"this run was made by {card.name} ({card.vocab_size} tokens), and {model.card.name} "
            f"({model.card.vocab_size} tokens) reads its tokens otherwise. Choose the model that made it"
        )
    return generate(model, started.prompt, config, draft, continued)
