"""What is odd about a prompt: an already rendered chat template, or a space at the end."""

import re
from typing import Final

from eab.errors import PromptError
from eab.events.chat import Prompt, read_messages
from eab.events.values import Message

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
