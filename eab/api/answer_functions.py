"""Functions that callers give for the part of a text that is its answer, and for same answers."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from eab.analysis.answer_parts import GivenPart
from eab.analysis.answers import Answers, group_answers
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
    """`group_answers` by what a function finds in the texts."""
    return group_answers(
        run, _returning(str | None, part, "a text, or None if there is no answer"), same
    )


def _returning(kind: Any, function: Callable[..., Any], allowed: str) -> Callable[..., Any]:
    def checked(*texts: str) -> Any:
        found = function(*texts)
        if not isinstance(found, kind):
            raise ConfigError(f"a function for answers returned {quoted(found)}; return {allowed}")
        return found

    return checked
