"""Renders chat templates, which are untrusted programs, within limits of time and size.

transformers renders templates in a sandbox, which protects the machine but lets them loop forever.
The same environment is used here, with limits on the time, on the characters of the output, and on
what its operators and functions produce on the way.
"""

import operator
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any, Final

from jinja2 import Template
from jinja2.sandbox import SandboxedEnvironment
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import _compile_jinja_template

from eab.settings import MAX_TEXT

MOST_CHARACTERS: Final = 4 * MAX_TEXT  # of a rendered chat
MOST_SECONDS = 3.0  # of CPU time
_TOO_MANY: Final = f"its output has more than {MOST_CHARACTERS:,} characters"
_MOST_BITS: Final = 4096  # in the result of a power
_END: Final = "END_OF_THE_LAST_MESSAGE "  # the space at the end tells whether a template strips


class TemplateTooLarge(Exception):
    """A template takes too long or produces too much."""


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> str:
    """The text of a chat, identical to that of transformers' `apply_chat_template`.

    If the last message is the assistant's, it is left open to be continued. After any other
    message, the assistant's turn is started.

    Raises:
        TemplateTooLarge: It takes more than MOST_SECONDS, or produces more than MOST_CHARACTERS.
        Exception: Whatever the template raises.
    """
    open_ended = messages[-1]["role"] == "assistant"
    chat = [dict(message) for message in messages]
    if open_ended:
        chat[-1]["content"] += _END
    given: dict[str, Any] = {"messages": chat, "tools": None, "documents": None}
    given |= {"add_generation_prompt": not open_ended, **tokenizer.special_tokens_map, **variables}
    with _deadline():
        text = _joined(_compiled(tokenizer.get_chat_template()).generate(given))
    return _before_end(text, messages[-1]["content"]) if open_ended else text


def _before_end(text: str, content: str) -> str:
    """The text before the end marker of the last message; ValueError if the message is missing."""
    place = text.rfind(_END.strip())
    if place < 0 or content.strip() not in text:
        raise ValueError("the last message is not in the output of the template")
    kept = text[place:].startswith(_END)
    return text[:place] if kept else text[:place].rstrip()


def _joined(pieces: Iterator[str]) -> str:
    kept: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > MOST_CHARACTERS:
            raise TemplateTooLarge(_TOO_MANY)
        kept.append(piece)
    return "".join(kept)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    """The template, compiled in transformers' environment with bounded operators."""
    environment: SandboxedEnvironment = _compile_jinja_template("").environment.overlay()
    environment.intercepted_binops = frozenset(("*", "**"))  # these are not constant-folded either
    environment.binop_table = environment.binop_table | {"*": _times, "**": _power}
    return environment.from_string(template)


def _times(left: Any, right: Any) -> Any:
    for some, count in ((left, right), (right, left)):
        if isinstance(some, str | list | tuple) and len(some) * count > MOST_CHARACTERS:
            raise TemplateTooLarge(_TOO_MANY)
    return operator.mul(left, right)


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * exponent > _MOST_BITS:
        raise TemplateTooLarge(f"it makes a power of more than {_MOST_BITS:,} bits")
    return operator.pow(base, exponent)


@contextmanager
def _deadline() -> Iterator[None]:
    """Raise TemplateTooLarge in the block once it has computed for MOST_SECONDS, or when a function
    returns more than MOST_CHARACTERS.

    Python calls the trace function for every line. A template is compiled to Python, so every loop
    is seen. A single call of a built-in function, such as a join, is not interrupted.
    """
    end = time.thread_time() + MOST_SECONDS

    def ask(_frame: FrameType, event: str, value: Any) -> Any:
        if event == "return" and isinstance(value, str | list) and len(value) > MOST_CHARACTERS:
            raise TemplateTooLarge(_TOO_MANY)
        if time.thread_time() > end:
            raise TemplateTooLarge(f"it takes more than {MOST_SECONDS:g} seconds")
        return ask

    before = sys.gettrace()
    sys.settrace(ask)
    try:
        yield
    finally:
        sys.settrace(before)
