"""Turns a prompt into token ids."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from transformers import PreTrainedTokenizerBase

from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.events import Message
from eab.events.chat import Prompt, as_json
from eab.formatting import reason_of
from eab.models import chat_template
from eab.models.token_bytes import control_tokens

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
            text = chat_template.render(self._tokenizer, messages, json.loads(given))
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
    return str(error) if isinstance(error, chat_template.TemplateTooLarge) else reason_of(error)
