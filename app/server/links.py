"""A link to a run: where it is found, its labels, its prompt and settings, and the cursor's step.

Links are untrusted: each value is checked, one bad value makes the whole link invalid, and no link
starts a run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from eab.config import AUTO, AllocationStep, BranchingConfig, ChatTemplate
from eab.engine.branching.presets import starting_config
from eab.errors import ConfigError, LinkError, PromptError
from eab.run.events import LabelRule, Message
from eab.run.events.chat import as_json, parse_messages, prompt_or_messages

MAX_PROMPT: Final = 2000  # characters; browsers and chat programs truncate long links
MAX_VALUE: Final = 300  # characters of any other value
_LONG: Final = ("prompt", "messages", "chat_template_kwargs", "stop", "label_words", "labels")
MAX_STEP: Final = 1_000_000
_SETTINGS: Final = {
    field.name: field.type for field in fields(BranchingConfig) if field.name != "kv_limit_mib"
}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Link:
    """The content of a link. `run` takes precedence over `saved`, and `saved` over `example`."""

    run: str = ""  # the id of a run that the server remembers
    saved: str = ""
    example: str = ""  # the file of a bundled run
    labels: tuple[LabelRule, ...] = ()  # of a saved or bundled run, in place of its own
    prompt: str | None = None  # or the title of the messages; None if the link has neither
    messages: tuple[Message, ...] = ()  # a chat in place of the prompt
    model: str = ""
    config: BranchingConfig | None = None
    cursor: int | None = None  # a step

    @property
    def complete(self) -> bool:
        """Whether the link is enough to run the prompt again."""
        return self.prompt is not None and self.config is not None


def to_query(link: Link) -> str:
    """The query of a URL, without the `?`. Values that are too long are left out."""
    values: dict[str, Any] = {
        name: getattr(link, name) for name in ("run", "saved", "example", "model")
    }
    values["labels"] = _labels_text(link)
    values |= {"messages": _messages_text(link)} if link.messages else {"prompt": link.prompt}
    if link.config is not None:
        values |= {name: getattr(link.config, name) for name in _SETTINGS}
    values["cursor"] = link.cursor
    texts = {name: _as_text(value) for name, value in values.items() if value not in ("", None, ())}
    return urlencode({name: text for name, text in texts.items() if len(text) <= _longest(name)})


def what_it_opens(link: Link) -> str:
    """A sentence that says what this link will show."""
    if max(len(link.prompt or ""), len(_messages_text(link))) > MAX_PROMPT:
        return (
            f"The prompt is too long for a link: more than {MAX_PROMPT:,} characters. Download "
            "the run file instead."
        )
    if link.prompt is None and not (link.saved or link.example):
        return "A link cannot hold a prompt of token ids. Download the run file instead."
    if link.run:
        return (
            "Opens this run as long as the server has it; after that, only its prompt and settings."
        )
    if len(_labels_text(link)) > MAX_PROMPT:
        return "Opens this run at this step, without its labels, which are too long for a link."
    if link.saved or link.example:
        return "Opens this run at this step."
    return "Opens the prompt and settings; the link does not contain the run file."


def from_query(values: Mapping[str, str]) -> Link:
    """Parse a query; unknown parameters are ignored. Raises LinkError if a value is not allowed."""
    for name, text in values.items():
        if len(text) > _longest(name):
            raise LinkError(
                f"{name} has {len(text):,} characters; a link can have at most {_longest(name):,}"
            )
    settings = {name: _parsed(name, values[name]) for name in _SETTINGS if name in values}
    try:
        config = starting_config(**settings) if settings else None
    except ConfigError as error:
        raise LinkError(str(error)) from error
    cursor = _parsed("cursor", values["cursor"]) if "cursor" in values else None
    if cursor is not None and not 0 <= cursor <= MAX_STEP:
        raise LinkError(f"cursor is {cursor}; it must be a step from 0 to {MAX_STEP:,}")
    prompt, messages = _what_to_run(values)
    places = {name: values.get(name, "") for name in ("run", "saved", "example", "model")}
    labels = _labels(values["labels"]) if "labels" in values else ()
    return Link(
        **places, labels=labels, prompt=prompt, messages=messages, config=config, cursor=cursor
    )


def _what_to_run(values: Mapping[str, str]) -> tuple[str | None, tuple[Message, ...]]:
    prompt, text = values.get("prompt"), values.get("messages")
    if text is None:
        return prompt, ()
    try:
        return prompt_or_messages(prompt, [*parse_messages(text)])
    except PromptError as error:
        raise LinkError(str(error)) from error


def _labels_text(link: Link) -> str:
    return msgspec.json.encode(link.labels).decode() if link.labels else ""


def _labels(text: str) -> tuple[LabelRule, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[LabelRule, ...])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise LinkError(f"labels is {text[:40]!r}, which names no labels: {error}") from error


def _messages_text(link: Link) -> str:
    return json.dumps(as_json(link.messages), ensure_ascii=False, separators=(",", ":"))


def _longest(name: str) -> int:
    return MAX_PROMPT if name in _LONG else MAX_VALUE


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, text: str) -> Any:
    """Convert a value to the setting's type; BranchingConfig checks its range."""
    kind: Any = int if name == "cursor" else _SETTINGS[name]
    if kind in (AllocationStep, ChatTemplate):
        if text == AUTO:
            return text
        kind = int if kind == AllocationStep else bool
    try:
        if kind is bool:
            return _BOOLEANS[text]
        if kind == tuple[str, ...]:
            return json.loads(text)
        return kind(text) if kind in (int, float) else text
    except (KeyError, ValueError, RecursionError) as error:
        words = {bool: "true, false or auto", int: "a whole number", float: "a number"}
        expected = words.get(kind, "a JSON list of texts")
        raise LinkError(f"{name} is {text[:40]!r}; it must be {expected}") from error
