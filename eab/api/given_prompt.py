"""A prompt in any form that callers have it in."""

from collections.abc import Mapping, Sequence
from typing import Any

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import PromptError
from eab.events import Message
from eab.events.chat import read_messages
from eab.formatting import quoted


def request_of(prompt: Any, config: BranchingConfig, continued: Sequence[int] = ()) -> Request:
    """The request for text, for the messages of a chat, or for token ids.

    Raises:
        PromptError: It is none of these.
    """
    more = _ids(continued)
    if more is None:
        raise PromptError(f"continued is {quoted(continued)}; give token ids")
    if isinstance(prompt, str):
        return Request(prompt, config, more)
    if (tokens := _ids(prompt)) is not None:
        return Request("", config, more, token_ids=tokens)
    if isinstance(prompt, Sequence) and all(isinstance(each, Mapping | Message) for each in prompt):
        return Request("", config, more, read_messages(prompt))
    raise PromptError(
        f"the prompt is {quoted(prompt)}; give text, messages such as "
        '[{"role": "user", "content": "Hello"}], or token ids'
    )


def requests_of(prompts: Any, config: BranchingConfig) -> list[Request]:
    """A request for each prompt; PromptError if they are no list of prompts."""
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Sequence):
        raise PromptError(f"the prompts are {quoted(prompts)}; give a list of prompts")
    return [request_of(prompt, config) for prompt in prompts]


def _ids(given: Any) -> tuple[int, ...] | None:
    """Token ids, also of an array or a tensor of one row; None if they are something else."""
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        return None
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return tuple(values)
    values = [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]
    return tuple(values) if all(type(value) is int for value in values) else None
