"""Which texts have a label: those that contain a text or a pattern, that are valid JSON, or that a
function of a program names (see `eab.analysis.labels`).
"""

import bisect
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from eab import token_text
from eab.analysis import answer_rules
from eab.analysis.answer_rules import Searcher
from eab.analysis.labels import Decided, KnownText, Label, Labelling, LabelOf, Labels, labels_of
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.run import RunState, Token
from eab.run.events import LabelRule

# A text that labelled texts contain, a pattern found in them, or a function of a complete text
Rule: TypeAlias = str | re.Pattern[str] | Callable[[str], bool]


def labelled(run: RunState, rules: Sequence[LabelRule]) -> Labels:
    """The labels of a run by marks and rules such as those in its file; later ones override.

    Raises:
        ConfigError: A pattern is wrong or takes too long.
    """
    return labels_of([run], recorded(rules))


def recorded(rules: Sequence[LabelRule]) -> Labelling:
    """How marks and rules such as those in a run's file label texts, for the next seconds.

    Raises:
        ConfigError: A pattern is wrong; or, later, takes too long.
    """
    marks = tuple(rule for rule in rules if rule.kind == "mark")
    end = time.monotonic() + answer_rules.MOST_SECONDS  # for all patterns: a file may have many
    others = [(rule.label, _holds_as_recorded(rule, end)) for rule in rules if rule.kind != "mark"]
    names = tuple(dict.fromkeys(rule.label for rule in rules))
    return Labelling(names, _by_rules(others), marks)


def labelled_by(
    runs: Sequence[RunState], rules: Mapping[str, Rule] | Callable[[str], Any]
) -> Labels:
    """The labels by rules of a program.

    Args:
        runs: One run, or several that differ only in their seeds.
        rules: For each label a text that such texts contain, a pattern that is found in them, or a
            function that is given a complete text and returns whether it has the label; later ones
            override earlier ones. Or a function that returns the label of a text, None for none.

    Raises:
        ConfigError: A rule is none of these, or a function returns something else.
    """
    return labels_of(runs, by_program(rules))


def by_program(rules: Mapping[str, Rule] | Callable[[str], Any]) -> Labelling:
    """How the rules of a program label texts; see `labelled_by`."""
    if callable(rules):
        return Labelling((), _by_function(rules))
    if not isinstance(rules, Mapping) or not rules:
        raise ConfigError(
            f"the rules are {quoted(rules)}; give a dictionary such as {{'Paris': 'Paris'}}, or a "
            "function that returns the label of a text"
        )
    holds = [(_checked_name(label), _holds(rule)) for label, rule in rules.items()]
    return Labelling(tuple(dict.fromkeys(label for label, _ in holds)), _by_rules(holds))


def probability(run: RunState, of: Rule) -> Label:
    """How likely it is that a text contains a text or a pattern, or that a function is true of it.

    Raises:
        ConfigError: It is none of these, or the function returns no bool.
    """
    name = of if isinstance(of, str) else getattr(of, "__name__", str(of))
    return labelled_by([run], {name or " ": of}).labels[0]


def is_json(text: str) -> bool:
    """Whether the text is valid JSON, and nothing else but white space around it."""
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return False
    return True


def _checked_name(label: object) -> str:
    if not isinstance(label, str) or not label:
        raise ConfigError(f"a label is {quoted(label)}; give a text of at least one character")
    return label


# ---- rules


@dataclass(frozen=True, slots=True)
class _Holds:
    """Whether a rule holds for a text."""

    of: Callable[[str], bool]
    # Whether the answer yes stays, however the text goes on
    stays: bool = False


def _holds_as_recorded(rule: LabelRule, end: float) -> _Holds:
    if rule.kind == "json":
        return _Holds(is_json)
    if rule.kind == "pattern":
        return _is_found(Searcher(rule.text, end=end))
    wanted = _lower(rule.text)
    return _Holds(lambda text: wanted in _lower(text), stays=True)


def _holds(rule: Rule) -> _Holds:
    if isinstance(rule, str) and rule:
        return _Holds(lambda text: rule in text, stays=True)
    if isinstance(rule, re.Pattern):
        return _is_found(Searcher.of(rule))
    if callable(rule):
        return _Holds(lambda text: _checked_bool(rule(text)))
    raise ConfigError(
        f"the property is {quoted(rule)}; give a text that the model might write, a pattern, "
        "or a function of a text"
    )


def _is_found(pattern: Searcher) -> _Holds:
    return _Holds(lambda text: pattern.search(text) is not None, stays=not pattern.looks_around)


def _lower(text: str) -> str:
    """Each character by itself: the lower case of a text must not depend on what follows it."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


def _checked_bool(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"the property returned {quoted(value)}; return True or False")
    return bool(value)


def _by_rules(rules: Sequence[tuple[str, _Holds]]) -> LabelOf:
    def label_of(run: RunState, known: KnownText) -> Decided | None:
        # What may still become part of a stop string is cut off with it.
        margin = max((len(stop) for stop in run.started.config.stop), default=1) - 1
        tokens, is_complete = known.tokens, known.text is not None
        text = _certain(tokens, margin) if known.text is None else known.text
        for number, (label, holds) in enumerate(reversed(rules)):
            if not (is_complete or holds.stays) or not holds.of(text):
                continue
            if number or not holds.stays:  # a rule that overrides this one may hold later
                return (len(tokens), label) if is_complete else None
            needed = bisect.bisect_left(
                range(len(tokens)),
                True,
                key=lambda count: holds.of(_certain(tokens[:count], margin)),
            )
            return needed, label
        return (len(tokens), None) if is_complete else None

    return label_of


def _certain(tokens: Sequence[Token], margin: int) -> str:
    """The part of an unfinished text that no later token changes."""
    text = token_text.exact(token.shown for token in tokens)
    return text[: max(0, len(text) - margin)].rstrip(_PARTS_OF_CHARACTERS)


_PARTS_OF_CHARACTERS: Final = "".join(map(chr, range(0xDC80, 0xDD00)))


def _by_function(function: Callable[[str], Any]) -> LabelOf:
    def label_of(_: RunState, known: KnownText) -> Decided | None:
        if known.text is None:
            return None
        label = function(known.text)
        return len(known.tokens), None if label is None else _checked_name(label)

    return label_of
