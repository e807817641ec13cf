"""Chats in the format of OpenAI and transformers: messages with a role and content each."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from eab.errors import PromptError
from eab.events.fields import MAX_MESSAGES, MAX_ROLE
from eab.events.values import Message
from eab.formatting import quoted
from eab.settings import MAX_TEXT

Prompt: TypeAlias = str | tuple[Message, ...]

_ROLE: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_ROLE - 1}}}")
_EXAMPLE: Final = '[{"role": "user", "content": "Hello"}]'


def read_messages(given: object) -> tuple[Message, ...]:
    """The messages of a chat.

    Args:
        given: A list of messages, or of objects with `role` and `content`. The content is text or
            a list of parts such as `{"type": "text", "text": "Hello"}`.

    Raises:
        PromptError: `given` is not a chat; the error names the index of the first bad message.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise PromptError(f"messages are {quoted(given)}; give a list such as {_EXAMPLE}")
    if not 1 <= len(given) <= MAX_MESSAGES:
        raise PromptError(
            f"there are {len(given):,} messages; a chat has 1 to {MAX_MESSAGES}. Add or remove some"
        )
    messages = tuple(_message(f"messages[{index}]", message) for index, message in enumerate(given))
    characters = sum(len(message.content) for message in messages)
    if characters > MAX_TEXT:
        raise PromptError(
            f"the messages have {characters:,} characters; at most {MAX_TEXT:,} are allowed. "
            "Shorten them"
        )
    return messages


def _message(name: str, given: object) -> Message:
    if isinstance(given, Message):
        given = {"role": given.role, "content": given.content}
    if not isinstance(given, Mapping) or set(given) != {"role", "content"}:
        raise PromptError(
            f"{name} is {quoted(given)}; a message has only a role and a content, as in {_EXAMPLE}"
        )
    role, content = given["role"], _as_text(given["content"])
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise PromptError(
            f"the role of {name} is {quoted(role)}; it must be a name such as system, user or "
            f"assistant: at most {MAX_ROLE} letters (a to z), digits, _ and -"
        )
    if not isinstance(content, str) or not content.strip():
        raise PromptError(
            f"the content of {name} is {quoted(content)}; it must be text, not empty. Write some "
            "words, or leave the message out"
        )
    try:
        content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the content of {name} is not valid text at character {error.start + 1}; type it again"
        ) from error
    return Message(role, content)


def _as_text(content: object) -> object:
    """Join content that is given in parts, if all of them are text; leave other content as is."""
    if not isinstance(content, list | tuple) or not content:
        return content
    parts = [part if isinstance(part, Mapping) else {} for part in content]
    texts = [part.get("text") if part.get("type") == "text" else None for part in parts]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(content) else content


def parse_messages(text: str) -> tuple[Message, ...]:
    """Parse the messages of a chat from JSON; PromptError if they are not valid."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PromptError(
            f"the messages are not valid JSON ({error}); write a list such as {_EXAMPLE}"
        ) from error
    return read_messages(given)


def as_json(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The messages as JSON values."""
    return [{"role": message.role, "content": message.content} for message in messages]


def title_of(messages: Sequence[Message]) -> str:
    """The title of a chat: its last user message, or its last message if no user wrote one."""
    users = [message.content for message in messages if message.role == "user"]
    return users[-1] if users else messages[-1].content


def prompt_or_messages(prompt: Any, messages: Any) -> tuple[str, tuple[Message, ...]]:
    """Accept either a prompt or messages; None means that an argument is not given. PromptError if
    both or neither are given, or if the messages are invalid.

    Returns:
        The prompt (not checked yet) or the title of the messages, and the messages.
    """
    if (prompt is None) == (messages is None):
        both = "a prompt and messages are given" if messages is not None else "there is no prompt"
        raise PromptError(f"{both}; give either a prompt or messages")
    if messages is None:
        return prompt, ()
    chat = read_messages(messages)
    return title_of(chat), chat
