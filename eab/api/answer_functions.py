"""Functions that callers give for the part of a text that is its answer, and for same answers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from eab.analysis.answer_parts import TEXT, GivenPart
from eab.analysis.answers import NO_ANSWER, Answer, Answers, LeafAnswer, group_answers
from eab.analysis.same_answer import RULES, SameAnswer
from eab.branching.own import takes
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.run import RunState

AnyPart: TypeAlias = GivenPart | Callable[[str], str | None]


def checked_rule(same: Any) -> SameAnswer:
    """The rule; ConfigError if it is no function of three texts, or later returns no bool."""
    if same in RULES.values():
        return same  # type: ignore[no-any-return]
    if not callable(same) or not takes(same, 3):
        raise ConfigError(
            f"the rule of same answers is {quoted(same)}; give one of {', '.join(RULES)}, or a "
            "function of a question and two texts"
        )
    return _returning(bool | np.bool_, same, "True or False, such as score > 0.5")


def answers_by(run: RunState, part: Any, same: SameAnswer) -> Answers:
    """`group_answers` by what a function finds in the texts; those that are equal after
    `eab.analysis.same_answer.normalised` have the same answer.
    """
    read = _returning(str | None, part, "a text, or None if there is no answer")

    def same_part(question: str, one: str, other: str) -> bool:
        found = read(one), read(other)
        return found[0] is found[1] if None in found else same(question, *found)

    def named(each: Any, text: str | None) -> Any:
        return replace(each, text=NO_ANSWER if text is None else text, matched=text is not None)

    found = group_answers(run, TEXT, same_part)
    parts = {leaf.leaf: read(leaf.text) for leaf in found.decided}
    ranked: list[Answer] = [named(each, parts[each.leaves[0]]) for each in found.ranked]
    decided: list[LeafAnswer] = [named(each, parts[each.leaf]) for each in found.decided]
    return replace(found, ranked=tuple(ranked), decided=tuple(decided))


def _returning(kind: Any, function: Callable[..., Any], allowed: str) -> Callable[..., Any]:
    def checked(*texts: str) -> Any:
        found = function(*texts)
        if not isinstance(found, kind):
            raise ConfigError(f"a function for answers returned {quoted(found)}; return {allowed}")
        return found

    return checked
