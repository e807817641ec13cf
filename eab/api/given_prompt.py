"""Prompts in any form that callers may have, and the requests made from them and settings."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from traceback import walk_stack
from typing import Any, TypeAlias

from eab.branching.own import own_name
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ConfigError, PromptError, PromptWarning
from eab.events import Message
from eab.events.chat import read_messages
from eab.events.rendered_chat import notices
from eab.formatting import quoted
from eab.text_values import listed

Prompt: TypeAlias = str | Sequence[Message] | Sequence[Mapping[str, str]] | Sequence[int]


def without_prompt(settings: Mapping[str, Any]) -> Request:
    """A request with these settings but no prompt yet. `policy` and `logits_processor` may be the
    caller's own objects.

    Raises:
        ConfigError: A value is not allowed.
    """
    plain = dict(settings)
    processors, policy = plain.pop("logits_processor", None), plain.get("policy")
    parse_special = plain.pop("parse_special", False)
    if not isinstance(parse_special, bool):
        raise ConfigError(f"parse_special is {quoted(parse_special)}; it must be True or False")
    if policy is None or isinstance(policy, str):
        policy = None
    else:
        plain["policy"] = own_name(policy)
    config = BranchingConfig.from_settings(plain)
    return Request(
        "", config, policy=policy, logits_processors=processors, parse_special=parse_special
    )


def request_of(prompt: Any, asked: Request, continued: Sequence[int] = ()) -> Request:
    """The request for a prompt (text, chat messages or token ids), with the settings of `asked`.

    Raises:
        PromptError: The prompt is none of these.
    """
    more = _ids(continued)
    if more is None:
        raise PromptError(f"continued is {quoted(continued)}; give token ids")
    if isinstance(prompt, str):
        return warned(replace(asked, prompt=prompt, continued=more))
    if (tokens := _ids(prompt)) is not None:
        return replace(asked, token_ids=tokens, continued=more)
    if isinstance(prompt, Sequence) and all(isinstance(each, Mapping | Message) for each in prompt):
        return warned(replace(asked, messages=read_messages(prompt), continued=more))
    raise PromptError(
        f"the prompt is {quoted(prompt)}; give text, messages such as "
        '[{"role": "user", "content": "Hello"}], or token ids'
    )


def warned(request: Request) -> Request:
    """The request, after a warning of what the writer of its prompt may not have meant."""
    frames = enumerate(walk_stack(sys._getframe()), 1)
    callers = (
        at for at, (one, _) in frames if not str(one.f_globals.get("__name__")).startswith("eab.")
    )
    level = next(callers, 1)  # the line outside this package
    if request.messages or isinstance(request.prompt, str):  # else it is refused when built
        for notice in notices(request.messages or request.prompt, request.parse_special):
            warnings.warn(notice, PromptWarning, stacklevel=level)
    return request


def requests_of(prompts: Any, asked: Request) -> list[Request]:
    """A request for each prompt; PromptError if `prompts` is not a list, Series, array or generator
    of prompts.
    """
    if (given := listed(prompts)) is None:
        raise PromptError(f"the prompts are {quoted(prompts)}; give a list of prompts")
    return [request_of(prompt, asked) for prompt in given]


def _ids(given: Any) -> tuple[int, ...] | None:
    """Token ids from a sequence, or from an array or tensor of one row; None if not token ids."""
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Sequence):
        return None
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return tuple(values)
    values = [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]
    return tuple(values) if all(type(value) is int for value in values) else None
