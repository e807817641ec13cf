"""How likely the same labels are in two runs, such as after two prompts: a sentence and a chart."""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import pandas as pd

from eab import token_text
from eab.analysis.label_rules import labelled
from eab.analysis.labels import Label
from eab.analysis.uncertainty import student
from eab.events import LabelRule
from eab.events.fields import MAX_LABEL
from eab.figures.answers import bounds_figure
from eab.figures.drawing import go
from eab.run import RunState

# What is known of the difference between A and B: it is certain, it is significant at the level of
# 5 %, it is not, or nothing says, because a single tree has no standard error.
Known = Literal["certain", "significant", "not significant", "unknown"]
_ROUND: Final = 1e-9  # bounds that touch up to rounding


class LabelPair(NamedTuple):
    """A label in two runs."""

    name: str
    a: Label
    b: Label
    margin: float | None  # half the 95 % interval of the difference; None for a single tree

    @property
    def difference(self) -> float:
        """The estimate in A minus that in B, -1 to 1."""
        return self.a.estimate - self.b.estimate

    @property
    def known(self) -> Known:
        """What is known of the difference."""
        if self.a.low > self.b.high + _ROUND or self.b.low > self.a.high + _ROUND:
            return "certain"
        if self.margin is None:
            return "unknown"
        return "significant" if abs(self.difference) > self.margin else "not significant"


def common_rules(a: RunState, b: RunState, word: str = "") -> tuple[LabelRule, ...]:
    """The rules of either run, and one for texts with the word; a mark belongs to a single tree."""
    own = (rule for rule in (*a.labels, *b.labels) if rule.kind != "mark")
    asked = [LabelRule(word[:MAX_LABEL], "contains", text=word)] if word else []
    return tuple(dict.fromkeys([*own, *asked]))


def label_pairs(a: RunState, b: RunState, rules: Sequence[LabelRule]) -> list[LabelPair]:
    """Each label in both runs.

    Raises:
        ConfigError: A pattern is wrong or takes too long.
    """
    in_a, in_b = labelled(a, rules), labelled(b, rules)
    freedom = min(in_a.runs, in_b.runs) - 1  # not more than Welch's
    pairs = []
    for one, other in zip(in_a, in_b, strict=True):
        margin = None
        if one.standard_error is not None and other.standard_error is not None:
            margin = student(freedom) * math.hypot(one.standard_error, other.standard_error)
        pairs.append(LabelPair(one.name, one, other, margin))
    return pairs


def comparison_sentence(pairs: Sequence[LabelPair]) -> str:
    """The last label, which is the word that was asked for, and what is known of its difference.
    (The largest of several differences would be significant too often.)
    """
    last = pairs[-1]
    name = token_text.visible(last.name)
    return f"“{name}”: {last.a.estimate:.1%} in A, {last.b.estimate:.1%} in B. {_certainty(last)}"


def _certainty(pair: LabelPair) -> str:
    if pair.known == "certain":
        return "The difference is certain: the bounds do not overlap."
    if pair.known == "unknown":
        return (
            "The bounds overlap, and single runs have no standard error: under “How likely?” on "
            "Explore, repeat both runs with 8 seeds."
        )
    size = f"{100 * abs(pair.difference):.1f} ± {100 * (pair.margin or 0.0):.1f} points (95 %)"
    if pair.known == "significant":
        return f"They differ by {size}."
    return f"No difference measured: {size}."


def comparison_figure(pairs: Sequence[LabelPair]) -> go.Figure:
    """Two rows per label, one for each run, with its probability in percent."""
    rows = [(f"{side}: {pair.name}", label) for pair in pairs for side, label in _sides(pair)]
    return bounds_figure(rows)


def _sides(pair: LabelPair) -> tuple[tuple[str, Label], tuple[str, Label]]:
    return ("A", pair.a), ("B", pair.b)


def pairs_table(pairs: Sequence[LabelPair]) -> pd.DataFrame:
    """One row per label and run; probabilities are 0 to 1."""
    rows = [
        (pair.name, side, label.estimate, label.standard_error, label.low, label.high)
        for pair in pairs
        for side, label in _sides(pair)
    ]
    columns = ["label", "run", "estimate", "standard_error", "at_least", "at_most"]
    return pd.DataFrame(rows, columns=columns).astype({"standard_error": float})
