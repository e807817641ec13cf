"""The lines of a file of prompts: each is a run, with an id, a prompt and settings.

JSON lines hold an object each: `prompt`, optionally `id`, and any settings by their names in
Python. A file whose name ends in .txt holds a prompt per line. Empty lines count, but are no runs.
"""

from dataclasses import asdict, dataclass

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ConfigError, EabError
from eab.record.prompt_lines import (
    check_new_id,
    checked_id,
    default_id,
    numbered_lines,
    parsed_object,
    raise_if_wrong,
    words_of,
)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One run of a batch.

    Attributes:
        number: The number of its line, from 1.
        id: Names its run file.
        request: Prompt and settings.
    """

    number: int
    id: str
    request: Request

    def __str__(self) -> str:
        return f"line {self.number} ({self.id})"


def read_lines(name: str, defaults: BranchingConfig) -> list[BatchLine]:
    """The runs that a file asks for.

    Args:
        name: The file; `-` for JSON lines from standard input.
        defaults: The settings of lines that do not set them.

    Raises:
        RecordError: The file cannot be read.
        ConfigError: Lines are wrong, or there are none; the message has the reason for each.
    """
    lines: list[BatchLine] = []
    numbers: dict[str, int] = {}
    problems: list[str] = []
    for number, text in numbered_lines(name):
        try:
            line = _line(number, text, defaults, is_json=not name.endswith(".txt"))
            check_new_id(line.id, number, numbers)
            lines.append(line)
        except EabError as error:
            problems.append(f"line {number}: {error}")
    raise_if_wrong(name, problems)
    if not lines:
        raise ConfigError(f"{words_of(name)} has no prompts; write one per line")
    return lines


def _line(number: int, text: str, defaults: BranchingConfig, *, is_json: bool) -> BatchLine:
    if not is_json:
        return BatchLine(number, default_id(number), Request(text, defaults))
    value = parsed_object(text)
    own_id, prompt = value.pop("id", default_id(number)), value.pop("prompt", None)
    if not isinstance(prompt, str):
        raise ConfigError(f"prompt is {prompt!r:.40}; every line needs a prompt, as text")
    config = BranchingConfig.from_settings(asdict(defaults) | value)
    return BatchLine(number, checked_id(own_id), Request(prompt, config))
