"""From a prompt to token ids, and from single tokens back to their exact text, for byte-level and
SentencePiece-like vocabularies. Chat templates are untrusted programs, and are rendered within
limits of time and size.

transformers renders templates in a sandbox, which protects the machine but lets them loop forever.
The same environment is used here, with limits on the time, on the characters of the output, and on
what its operators and functions produce on the way.
"""

import json
import operator
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import FrameType
from typing import Any, Final

from jinja2 import Template
from jinja2.sandbox import SandboxedEnvironment
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.utils.chat_template_utils import _compile_jinja_template

from eab import token_text
from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.formatting import reason_of
from eab.run.events import Message
from eab.run.events.chat import Prompt, as_json
from eab.settings import MAX_TEXT

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenTexts(dict[int, str]):
    """`texts[token]` is the token's text (see `eab.token_text`), also beyond the vocabulary."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(control_tokens(tokenizer))
        by_byte = bytes_to_unicode() if "ByteLevel" in _decoder_kinds(tokenizer) else {}
        self._byte_of = {character: byte for byte, character in by_byte.items()}

    def __missing__(self, token: int) -> str:
        return self.setdefault(token, self._text(token))

    def is_special(self, token: int) -> bool:
        return token in self._special

    def _text(self, token: int) -> str:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if not isinstance(piece, str):
            return f"<unused {token}>"  # a model's vocabulary may be larger than the tokenizer's
        if self.is_special(token):
            return piece
        if self._byte_of:
            if all(character in self._byte_of for character in piece):
                return token_text.from_bytes(bytes(map(self._byte_of.__getitem__, piece)))
            return piece
        byte = _BYTE_TOKEN.fullmatch(piece)
        return token_text.from_bytes(bytes([int(byte[1], 16)])) if byte else piece.replace("▁", " ")


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """The ids and texts of the tokens that `skip_special_tokens` of transformers leaves out: also
    those without a named role, such as the turns of a chat template.
    """
    added = tokenizer.added_tokens_decoder.items()
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    return dict(named) | {id: token.content for id, token in added if token.special}


def _decoder_kinds(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """The types of the decoding steps of a fast tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = json.loads(backend.to_str()).get("decoder") if backend is not None else None
    if not decoder:
        return set()
    return {step["type"] for step in decoder.get("decoders", [decoder])}


_TURN: Final = re.compile("user|assistant|system", re.IGNORECASE)


class PromptEncoder:
    """Turns prompts into token ids. Control tokens that somebody wrote are ordinary text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = (token.content for token in tokenizer.added_tokens_decoder.values())
        # DeepSeek's turns, such as <｜User｜>, are not marked as special.
        texts = {*control_tokens(tokenizer).values(), *filter(_TURN.search, added)}
        longer = map(re.escape, sorted(text for text in texts if len(text) > 1))
        self._begins = re.compile(f"(?={'|'.join(longer) or '(?!)'})(.)", re.DOTALL)

    def __call__(
        self, name: str, prompt: Prompt, config: BranchingConfig, parse_special: bool = False
    ) -> tuple[int, ...]:
        """Token ids of a chat, or of a prompt, with the chat template if the config asks for it.

        Args:
            name: The model's name, for messages.
            parse_special: Whether control tokens in what somebody wrote are control tokens.

        Raises:
            ModelError: A chat template is needed, but the model has none that can be used.
        """
        template = self._tokenizer.chat_template
        if isinstance(prompt, str):
            if not config.chat or not (template or _needs_template(name, config)):
                return self._continued(prompt, parse_special)
            prompt = (Message("user", prompt),)
        elif not template:
            raise ModelError(f"{name} has no chat template, which messages require; give a prompt")
        system = (Message("system", config.system),) if config.system else ()
        messages = as_json([*system, *prompt])
        given = config.chat_template_kwargs or "{}"
        cut = _unused("".join([given, str(template), *(each["content"] for each in messages)]))
        if not parse_special:
            given = self._with_cuts(given, cut)
            for message in messages:
                message["content"] = self._with_cuts(message["content"], cut)
        try:
            text = render(self._tokenizer, messages, json.loads(given))
        except Exception as error:  # a template is a program that comes with the model
            raise ModelError(
                f"the chat template of {name} cannot be used ({_reason(error)}); run it without "
                "chat"
            ) from error
        first, *others = text.split(cut)
        ids = self._tokenizer.encode(first, add_special_tokens=False)
        return (*ids, *self._after(others))

    def _continued(self, prompt: str, parse_special: bool) -> tuple[int, ...]:
        """Token ids of a text to continue, after one BOS token if the tokenizer begins with it."""
        bos, encode = self._tokenizer.bos_token, self._tokenizer.encode
        if bos and prompt.startswith(bos) and encode("")[:1] == [self._tokenizer.bos_token_id]:
            prompt = prompt.removeprefix(bos)
        cut = _unused(prompt)
        first, *others = (prompt if parse_special else self._with_cuts(prompt, cut)).split(cut)
        return (*encode(first), *self._after(others))

    def following(self, text: str) -> tuple[int, ...]:
        """Token ids of a text in the middle of another."""
        cut = _unused(text)
        return tuple(self._after(self._with_cuts(text, cut).split(cut)))

    def _with_cuts(self, text: str, cut: str) -> str:
        """The text with a mark after the first character of each control token. Encoded in parts,
        it has no control tokens, however the tokenizer finds them.
        """
        return self._begins.sub(rf"\1{cut}", text)

    def _after(self, parts: Sequence[str]) -> Iterator[int]:
        """Token ids of parts in the middle of a text. They are encoded after a line break, because
        SentencePiece puts a space before the beginning of a text.
        """
        encode = partial(self._tokenizer.encode, add_special_tokens=False)
        before = encode("\n")
        for part in parts:
            ids = encode(f"\n{part}")
            yield from ids[len(before) :] if ids[: len(before)] == before else encode(part)


def _unused(text: str) -> str:
    """A private character that the text does not have."""
    return next(mark for mark in map(chr, range(0xE000, 0xF900)) if mark not in text)


def _needs_template(name: str, config: BranchingConfig) -> bool:
    """Raise ModelError if a setting needs the chat template that this model lacks; else False."""
    for setting in ("system", "chat_template_kwargs"):
        if getattr(config, setting):
            raise ModelError(
                f"{name} has no chat template, which {setting} requires; leave it empty"
            )
    if config.chat is True:
        raise ModelError(f"{name} has no chat template; run it without chat")
    return False


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TemplateTooLarge) else reason_of(error)


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
