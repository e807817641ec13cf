"""Functions that callers give for the part of a text that is its answer, and for same answers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from eab.analysis.answer_parts import TEXT, GivenPart
from eab.analysis.answers import NO_ANSWER, Answers, group_answers
from eab.analysis.same_answer import RULES, SameAnswer
from eab.branching.own import takes
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.run import RunState

PartOf: TypeAlias = Callable[[str], str | None]
AnyPart: TypeAlias = GivenPart | PartOf


def checked_rule(same: Any) -> SameAnswer:
    """The rule; ConfigError if it is no function of three texts, or returns no bool."""
    if same in RULES.values():
        return same  # type: ignore[no-any-return]
    if not callable(same) or not takes(same, 3):
        raise ConfigError(
            f"the rule of same answers is {quoted(same)}; give one of {', '.join(RULES)}, or a "
            "function of a question and two texts"
        )

    def checked(question: str, one: str, other: str) -> bool:
        found = same(question, one, other)
        if not isinstance(found, bool | np.bool_):
            raise ConfigError(
                f"the rule of same answers returned {quoted(found)}; it must return True or False, "
                "such as score > 0.5"
            )
        return bool(found)

    return checked


def answers_by(run: RunState, part: PartOf, same: SameAnswer) -> Answers:
    """`group_answers` by what a function finds in the texts. Texts that differ in nothing but what
    `eab.analysis.same_answer.normalised` ignores have the same answer.
    """

    def read(text: str) -> str | None:
        found = part(text)
        if found is not None and not isinstance(found, str):
            raise ConfigError(
                f"the function for part returned {quoted(found)}; it must return a text, or None "
                "if there is no answer"
            )
        return found

    def same_part(question: str, one: str, other: str) -> bool:
        first, second = read(one), read(other)
        if first is None or second is None:
            return first is second
        return same(question, first, second)

    found = group_answers(run, TEXT, same_part)
    parts = {leaf.leaf: read(leaf.text) for leaf in found.decided}
    shown = {leaf: NO_ANSWER if part is None else part for leaf, part in parts.items()}
    ranked = [
        replace(
            answer,
            text=shown[answer.leaves[0]].strip(),
            matched=parts[answer.leaves[0]] is not None,
        )
        for answer in found.ranked
    ]
    decided = [
        replace(leaf, text=shown[leaf.leaf], matched=parts[leaf.leaf] is not None)
        for leaf in found.decided
    ]
    return replace(found, ranked=tuple(ranked), decided=tuple(decided))
