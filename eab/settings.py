"""How a setting is declared: its default, allowed values, texts, and widget on the page; and the
units of the entropy threshold, each with values and a widget of its own.

eab.config declares each setting once with `setting`. Validation, command-line options, the page's
widgets and docs/settings.md are all derived from that declaration.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, Literal, Protocol, TypeVar

from eab.errors import ConfigError, check_one_of
from eab.formatting import quoted

T = TypeVar("T")
_KEY: Final = "setting"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")
MAX_TEXT: Final = 200_000  # characters of a prompt or of a text setting


class Values(Protocol):
    """The values that a setting allows."""

    def check(self, name: str, value: object) -> None:
        """Raise ConfigError if the value is not allowed; `name` is used in the message."""
        ...

    def __str__(self) -> str:
        """The allowed values, for a table."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers from `low` to `high`, and the word `or_word` unless it is empty."""

    low: int
    high: int
    hint: str = ""
    or_word: str = ""

    def check(self, name: str, value: object) -> None:
        if self.or_word and isinstance(value, str) and value == self.or_word:
            return
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not self.low <= value <= self.high:  # type: ignore[operator]
            kind = f"a whole number from {self.low} to {self.high}"
            raise ConfigError(f"{name} is {quoted(value)}; it must be {kind}{_bracket(self.hint)}")

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + (f", or {self.or_word}" if self.or_word else "")


@dataclass(frozen=True, slots=True)
class Real:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    hint: str = ""

    def check(self, name: str, value: object) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.low <= value <= self.high:  # type: ignore[operator]
            kind = f"a number from {self.low:.15g} to {self.high:.15g}"
            raise ConfigError(f"{name} is {quoted(value)}; it must be {kind}{_bracket(self.hint)}")

    def __str__(self) -> str:
        return f"{self.low:.15g} to {self.high:.15g}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several names or, unless `own` is empty, `own` followed by another plain name."""

    names: tuple[str, ...]
    own: str = ""

    def check(self, name: str, value: object) -> None:
        is_own = self.own and isinstance(value, str) and value.startswith(self.own)
        if is_own and _PLAIN_NAME.fullmatch(str(value).removeprefix(self.own)):
            return
        check_one_of(self.names, value, f"{name} is")

    def __str__(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off, and the word `or_word` unless it is empty."""

    or_word: str = ""

    def check(self, name: str, value: object) -> None:
        if self.or_word and isinstance(value, str) and value == self.or_word:
            return
        if not isinstance(value, bool):
            allowed = f"true, false or {self.or_word!r}" if self.or_word else "true or false"
            raise ConfigError(f"{name} is {quoted(value)}; it must be {allowed}")

    def __str__(self) -> str:
        return f"on, off, {self.or_word}" if self.or_word else "on, off"


@dataclass(frozen=True, slots=True)
class Text:
    """Any text that can be encoded, of at most `longest` characters."""

    longest: int = MAX_TEXT

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            raise ConfigError(f"{name} is {quoted(value)}; it must be text")
        if len(value) > self.longest:
            raise ConfigError(
                f"{name} has {len(value):,} characters; at most {self.longest:,} are allowed. "
                "Shorten it"
            )
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{name} is not valid text at character {error.start + 1}; type it again"
            ) from error

    def __str__(self) -> str:
        return f"text of at most {self.longest:,} characters"


def _bracket(hint: str) -> str:
    return f" ({hint})" if hint else ""


class Widget(Protocol):
    """What the page offers for a setting, often only part of the allowed values."""

    def nearest(self, value: Any) -> Any:
        """The offered value nearest to an allowed one."""
        ...


class _AsGiven:
    """A widget that offers every allowed value."""

    __slots__ = ()

    def nearest(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Slider:
    """A slider over a range; its values have the type of `low` (int or float)."""

    low: float
    high: float
    step: float = 1

    def nearest(self, value: float) -> float:
        return type(self.low)(min(max(value, self.low), self.high))


@dataclass(frozen=True, slots=True)
class NumberBox:
    """An input box for a whole number."""

    low: int
    high: int

    def nearest(self, value: int) -> int:
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Steps:
    """A slider over a few values. It shows `labels`, and other values in the format `number`."""

    values: tuple[Any, ...]
    labels: Mapping[Any, str] = field(default_factory=dict)
    number: str = "{}"

    def nearest(self, value: Any) -> Any:
        if value in self.values:
            return value
        numbers = [choice for choice in self.values if not isinstance(choice, str)]
        return min(numbers, key=lambda choice: abs(choice - value))

    def label(self, value: Any) -> str:
        """What the slider shows for this value."""
        return self.labels.get(value) or self.number.format(value)


@dataclass(frozen=True, slots=True)
class Menu:
    """A drop-down list of names; a name that it does not offer is shown as the first one."""

    names: tuple[str, ...]

    def nearest(self, value: str) -> str:
        return value if value in self.names else self.names[0]


@dataclass(frozen=True, slots=True)
class Buttons(_AsGiven):
    """Values side by side, each with a label."""

    labels: Mapping[Any, str]


@dataclass(frozen=True, slots=True)
class TextLine(_AsGiven):
    """A single-line text box, with `example` as its placeholder."""

    example: str = ""


@dataclass(frozen=True, slots=True)
class TextArea(_AsGiven):
    """A multi-line text box, with `example` as its placeholder."""

    example: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    r"""A box for several texts, one per line; a line break inside a text is written as `\n`."""

    example: str = ""

    def nearest(self, value: tuple[str, ...]) -> str:
        """The content of the box for these texts."""
        return "\n".join(text.translate(_ESCAPES) for text in value)

    def read(self, held: str) -> tuple[str, ...]:
        """The texts in the box, without empty lines."""
        return tuple(_ESCAPED.sub(_unescaped, line) for line in held.split("\n") if line)


_SIGNS: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
_ESCAPES: Final = str.maketrans({sign: f"\\{letter}" for letter, sign in _SIGNS.items()})
_ESCAPED: Final = re.compile(r"\\([nrt\\])")


def _unescaped(match: "re.Match[str]") -> str:
    return _SIGNS[match[1]]


@dataclass(frozen=True, slots=True)
class Toggle(_AsGiven):
    """A switch."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting."""

    default: Any
    values: Values  # the allowed values
    group: str  # the heading that it appears under
    label: str  # its name on the page
    help: str  # what it does, in one or two sentences, wherever it is explained
    more: str = ""  # further facts, for docs/settings.md
    widget: Widget | None = None  # None if the page has no standard widget for it
    option: str = ""  # its name on the command line, if not the field's name
    advanced: bool = True  # whether the page shows it under "Advanced"


def setting(
    default: T,
    values: Values,
    group: str,
    label: str,
    help: str,
    *,
    more: str = "",
    widget: Widget | None = None,
    option: str = "",
    advanced: bool = True,
) -> T:
    """Declare a dataclass field that carries its Setting; the arguments are those of Setting."""
    declared = Setting(default, values, group, label, help, more, widget, option, advanced)
    made: T = field(default=default, metadata={_KEY: declared})
    return made


def settings_of(config: type[Any]) -> dict[str, Setting]:
    """The settings that a dataclass declares, by field name."""
    return {each.name: each.metadata[_KEY] for each in fields(config)}


def naming_the_nearest(config: type[T]) -> type[T]:
    """Make an unknown name a ConfigError that suggests the nearest setting, not a TypeError."""
    init: Any = config.__init__
    known = settings_of(config)

    @wraps(init)
    def checked_init(self: T, /, *values: Any, **settings: Any) -> None:
        for name in settings:
            if name not in known:
                text = f"there is no setting {quoted(name)}; {_known_settings(known, name)}"
                raise ConfigError(text)
        init(self, *values, **settings)

    config.__init__ = checked_init  # type: ignore[assignment]
    return config


# What other libraries call a setting
_ELSEWHERE: Final = {
    "max_length": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "num_beams": "max_paths",
    "num_return_sequences": "max_paths",
    "repeat_penalty": "repetition_penalty",
    "stop_strings": "stop",
}


def _known_settings(settings: Mapping[str, Setting], name: str) -> str:
    """The names of all settings, after a question that suggests the one closest to `name`."""
    names = {known: known for known in settings}
    names |= {declared.option: known for known, declared in settings.items() if declared.option}
    names |= {other: known for other, known in _ELSEWHERE.items() if known in settings}
    nearest = get_close_matches(name[:60], names, n=1)
    question = f"did you mean {names[nearest[0]]!r}? The" if nearest else "the"
    return f"{question} settings are: {', '.join(settings)}"


ThresholdUnit = Literal["nats", "normalised", "rank"]


@dataclass(frozen=True, slots=True)
class ThresholdScale:
    """The entropy threshold in one unit: its range, its slider on the page, and what it means."""

    values: Real
    widget: Slider
    help: str


THRESHOLD_SCALES: Final[Mapping[ThresholdUnit, ThresholdScale]] = {
    "nats": ThresholdScale(
        Real(0.0, 20.0, hint="nats; 0.65 is about two equally likely tokens"),
        Slider(0.0, 4.0, 0.01),
        "Entropy in nats. e to this power is the number of equally likely tokens with this "
        "entropy.",
    ),
    "normalised": ThresholdScale(
        Real(0.0, 1.0, hint="as threshold_unit=normalised"),
        Slider(0.0, 1.0, 0.01),
        "Share of the largest possible entropy, ln V, where V is the size of the vocabulary.",
    ),
    "rank": ThresholdScale(
        Real(1.0, 24.0, hint="as threshold_unit=rank; 3 is the third-highest entropy"),
        Slider(1.0, 24.0, 1.0),
        "The rank of the threshold among the entropies along a greedy continuation of your prompt: "
        "1 is the highest. A higher rank gives more forks.",
    ),
}
