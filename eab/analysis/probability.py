"""How likely it is that a text has a property: an estimate from one tree, and certain bounds.

The weight of the texts with the property is the estimate. The probabilities of the texts seen are
known: those with the property have `low` together, and those without it leave no more than `high`.
Whether a text contains another is decided as soon as it does. So all that follows that token counts
as seen, also what the path limit dropped and what no path followed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from eab import token_text
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.run import Path, RunState, Token, least_probability

# A text that texts with the property contain, or a function of a text
Property: TypeAlias = str | Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Probability:
    """Of a property, after temperature and filters, for texts of at most max_new_tokens tokens.

    Attributes:
        estimate: The weight of the texts with the property, moved into the bounds.
        low: The probability is certainly not lower.
        high: The probability is certainly not higher.
    """

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.1%}, certainly between {self.low:.1%} and {self.high:.1%}"


def probability(run: RunState, of: Property) -> Probability:
    """The probability that a text has the property.

    Args:
        of: A text, for "contains this text"; or a function that is given a complete text.

    Raises:
        ConfigError: It is neither, or the function returns no bool.
    """
    if (not isinstance(of, str) and not callable(of)) or not of:
        raise ConfigError(
            f"the property is {quoted(of)}; give a text that the model might write, or a function "
            "of a text"
        )
    weight = 0.0
    seen: dict[bool, dict[tuple[int, ...], float]] = {True: {}, False: {}}
    for path in (path for path in run.paths if not path.children):
        tokens = list(run.tokens(path.id))
        has, count = _decided(run, path, tokens, of)
        if has is not None:
            known = tuple(token.id for token in tokens[:count])
            seen[has][known] = least_probability(tokens[:count])
        if has and path.status != "pruned":
            weight += path.weight
    low = min(1.0, math.fsum(seen[True].values()))
    high = max(low, 1.0 - math.fsum(seen[False].values()))
    return Probability(min(max(weight, low), high), low, high)


def _decided(
    run: RunState, path: Path, tokens: Sequence[Token], of: Property
) -> tuple[bool | None, int]:
    """Whether the text has the property, None if that is open, and how many tokens decide it."""
    if isinstance(of, str):
        # What may still become part of a stop string is cut off with it.
        margin = max((len(stop) for stop in run.started.config.stop), default=1) - 1
        text = ""
        for count, token in enumerate(tokens, start=1):
            text = token_text.exact([text, token.shown])
            if of in text[: len(text) - margin]:
                return True, count
    if path.status != "finished":
        return None, 0
    text = run.text(path.id)
    has = of in text if isinstance(of, str) else of(text)
    if not isinstance(has, bool | np.bool_):
        raise ConfigError(f"the property returned {quoted(has)}; return True or False")
    return bool(has), len(tokens)
