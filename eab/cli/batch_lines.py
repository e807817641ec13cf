"""The lines of a prompt file: each is a run, with an id, a prompt and settings.

Each JSON object has `prompt` or `messages` and optionally `id`, a `preset`, and any settings under
their Python names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eab.branching.presets import overridden, starting_config
from eab.engine.request import Request
from eab.errors import ConfigError
from eab.events.chat import prompt_or_messages
from eab.record import SUFFIX
from eab.record.growing_file import PART, is_part
from eab.record.prompt_lines import checked_id, default_id, items_of, lines_of


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One run of a batch."""

    number: int  # its line number, from 1
    id: str  # names its run file
    request: Request

    def __str__(self) -> str:
        return f"line {self.number} ({self.id})"


def read_lines(name: str, defaults: Mapping[str, Any]) -> list[BatchLine]:
    """Read the runs from a file or `-`; ConfigError has the reason for each wrong line. `defaults`
    are the settings, and a preset, of the lines that do not set them.
    """
    return items_of(name, lines_of(name), partial(_line, defaults))


def _line(defaults: Mapping[str, Any], number: int, given: dict[str, Any]) -> BatchLine:
    own_id, prompt = given.pop("id", default_id(number)), given.pop("prompt", None)
    prompt, messages = prompt_or_messages(prompt, given.pop("messages", None))
    if not isinstance(prompt, str):
        raise ConfigError(f"prompt is {prompt!r:.40}; every line needs a prompt, as text")
    config = starting_config(**overridden(defaults, given))
    return BatchLine(number, _run_id(own_id), Request(prompt, config, messages=messages))


def _run_id(given: Any) -> str:
    """The id of a line; ConfigError if it is not allowed or names an unfinished run's file."""
    id = checked_id(given)
    if is_part(Path(f"{id}{SUFFIX}")):
        raise ConfigError(
            f"id is {id!r:.40}; what ends in {PART} is the file of an unfinished run. Choose "
            "another id"
        )
    return id
