"""Chats in the format of OpenAI and transformers: messages with a role and content each.

Also what is odd about a prompt (a chat template that is already rendered, a space at the end), and
where the thought of a reasoning model ends, by the markers that its chat template names.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import regex

from eab.errors import PromptError
from eab.formatting import quoted
from eab.run.events.fields import MAX_MESSAGES, MAX_ROLE
from eab.run.events.values import Message
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


_BOS: Final = re.compile(
    r"\s*(<s>|<bos>|<\|begin_of_text\|>|<\|endoftext\|>|<｜begin▁of▁sentence｜>)?\s*"
)
# The beginning of a turn in ChatML, Llama 3, Gemma, Granite; Phi, Zephyr, DeepSeek; Mistral
_TURN: Final = re.compile(
    r"<(?:\|im_start\||\|start_header_id\||start_of_turn|\|start_of_role\|)>(\w+)"
    r"(?:<\|end_header_id\|>|<\|end_of_role\|>|(?=\n))"
    r"|<[|｜](system|user|assistant)[|｜]>|\[(/?INST)\]",
    re.IGNORECASE,
)
_END: Final = re.compile(
    r"(?:<\|(?:im_end|eot_id|end|end_of_text)\|>|<end_of_turn>|</s>|<｜end▁of▁sentence｜>)\s*\Z"
)
_ROLES: Final = {"model": "assistant", "inst": "user", "/inst": "assistant"}


def messages_of_rendered(text: str) -> tuple[Message, ...]:
    """The messages of a chat that a template has already rendered; empty if the text is not one."""
    bos = _BOS.match(text)
    assert bos is not None
    before, *parts = _TURN.split(text[bos.end() :])
    if not parts or (before and not bos[1]):
        return ()
    found = [Message("system", before.strip())] if before else []  # as in DeepSeek's chats
    turns = zip(*(parts[first::4] for first in range(4)), strict=True)
    for *named, content in turns:
        role = next(filter(None, named)).lower()
        found.append(Message(_ROLES.get(role, role), _END.sub("", content).strip()))
    if found[-1].role == "assistant" and not found[-1].content:
        found.pop()  # only the beginning of the answer
    try:
        return read_messages(found)
    except PromptError:
        return ()


def notices(prompt: Prompt, parse_special: bool = False) -> list[str]:
    """Sentences on what the writer of a prompt or a chat may not have meant."""
    text = prompt if isinstance(prompt, str) else prompt[-1].content
    said = []
    if text.endswith(" ") and text.strip():
        said.append(
            "The prompt ends in a space. Most models begin the next word with a space of its own, "
            "so this gives another tree than the prompt without it."
        )
    if isinstance(prompt, str) and not parse_special and messages_of_rendered(prompt):
        said.append(
            "The prompt is a chat that a template has already rendered. Its control tokens are "
            "read as ordinary text; give it as messages instead."
        )
    return said


_NAME: Final = r"[\w:]*(?:think|thought|reason)[\w:]*"
# The markers of the common families; Cohere's and those of gpt-oss are control tokens.
_MARKER: Final = regex.compile(
    rf"(?P<end></{_NAME}>|\[/{_NAME}\]|◁/{_NAME}▷|<\|end_{_NAME}\|>|"
    r"<\|channel\|>final<\|message\|>)|"
    rf"<{_NAME}>|\[{_NAME}\]|◁{_NAME}▷|<\|(?:start|begin)_{_NAME}\|>|"
    r"<\|channel\|>analysis<\|message\|>",
    regex.IGNORECASE,
)
# What differs between the two markers of a pair; a template may name only one of them.
_SIDE: Final = regex.compile(r"/|start_|begin_|end_|analysis|final", regex.IGNORECASE)


def markers_in(template: str) -> tuple[str, ...]:
    """The markers of thoughts that a chat template names."""
    return tuple(dict.fromkeys(marker[0] for marker in _MARKER.finditer(template)))


def end_of_thinking(prompt: str, text: str, named: Sequence[str] = ()) -> int | None:
    """Where the answer begins in a text with its control tokens: after the last thought.

    Args:
        prompt: What the model continued; a template may open the thought at its end.
        named: The markers that the template names, for both sides; if empty, those of the common
            families are known by their shape.

    Returns:
        None if the thought was not closed.
    """
    last = _last_marker(text, named)
    if last:
        return last.end() if last["end"] else None
    prompt = prompt.rstrip()
    opened = _last_marker(prompt, named)
    return None if opened and not opened["end"] and opened.end() == len(prompt) else 0


def _last_marker(text: str, named: Sequence[str]) -> "regex.Match[str] | None":
    pairs = set(map(_pair, named))
    found = [one for one in _MARKER.finditer(text) if not named or _pair(one[0]) in pairs]
    return found[-1] if found else None


def _pair(marker: str) -> str:
    pair: str = _SIDE.sub("", marker)
    return pair.casefold()
