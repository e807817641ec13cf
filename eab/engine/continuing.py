"""Continue a run from one of its tokens, as a new run."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from eab.config import BranchingConfig
from eab.engine.models.base import LanguageModel
from eab.engine.request import Request
from eab.errors import NO_MODEL, ConfigError, ModelError
from eab.run.events import RunStarted

# The settings that decide the token ids of a prompt
_of_prompt: Final = attrgetter("chat", "system", "chat_template_kwargs")


def continue_from(
    model: LanguageModel, started: RunStarted, continued: Sequence[int], config: BranchingConfig
) -> Request:
    """The request for a run that continues another with ids from `eab.run.RunState.continuation`.

    Raises:
        ConfigError: The run used logits processors; without them its distribution would differ.
        ModelError: The run was imported, or another model made it. The token ids are used
            unchanged, so they must stand for the same text.
    """
    if started.logits_processors:
        raise ConfigError(
            f"this run used logits processors ({', '.join(started.logits_processors)}), which can "
            "only be given in Python; continue the run there, with continued="
        )
    if started.imported:
        raise ModelError(NO_MODEL)
    card = started.model
    same = model.card.name == card.name and model.card.vocab_size == card.vocab_size
    same = same and max(started.prompt_tokens, default=0) < card.vocab_size
    if not same or tuple(map(model.text, started.prompt_tokens)) != started.prompt_texts:
        raise ModelError(
            f"this run was made by {card.name} ({card.vocab_size} tokens); the vocabulary of "
            f"{model.card.name} ({model.card.vocab_size} tokens) is different. Choose the model "
            "that made the run"
        )
    given, special = started.by_token_ids, started.parse_special
    ids = started.own_tokens if given or _of_prompt(config) == _of_prompt(started.config) else ()
    prompt = "" if given else started.prompt
    return Request(prompt, config, tuple(continued), started.messages, ids, parse_special=special)
