"""The probability of each answer or label: a bar for the certain bounds, and a diamond for the
estimate, with its standard error if there is one. Also the same labels in two runs, such as after
two prompts; and the answers of a class, compared with the model's probabilities.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import pandas as pd

from eab import token_text
from eab.analysis.answers import Answer, Answers
from eab.analysis.label_rules import labelled
from eab.analysis.labels import Label
from eab.analysis.run_comparison import student
from eab.config import MAX_LABEL
from eab.figures.charts import BLUE, ORANGE, bar_pattern, go, laid_out, text_label
from eab.formatting import counted, listed, quoted
from eab.run import RunState
from eab.run.events import LabelRule

DRAWN = 24  # only the most likely answers; the table has all of them
_MAX_LABEL = 48  # characters
_ESTIMATE = "#b35900"  # its shape and white edge also distinguish it from the bar


def answers_figure(answers: Answers) -> go.Figure:
    """One row per answer, the most likely at the top, with its probability in percent."""
    return bounds_figure([(_words(answer), answer) for answer in answers.ranked[:DRAWN]])


def _words(answer: Answer) -> str:
    return token_text.visible(answer.name) or "(nothing)"


def bounds_figure(labels: Sequence[tuple[str, Label]]) -> go.Figure:
    """One row per label, by its words, with its probability in percent."""
    rows = list(range(len(labels)))
    certain = go.Bar(
        name="certain bounds of the probability",
        orientation="h",
        y=rows,
        base=[100 * label.low for _, label in labels],
        x=[100 * (label.high - label.low) for _, label in labels],
        marker={"color": BLUE},
        customdata=[[label.low, label.high] for _, label in labels],
        hovertemplate="at least %{customdata[0]:.2%}, at most %{customdata[1]:.2%}<extra></extra>",
    )
    errors = [100 * (label.standard_error or 0.0) for _, label in labels]
    estimate = go.Scatter(
        name="estimated from the weights",
        mode="markers",
        y=rows,
        x=[100 * label.estimate for _, label in labels],
        error_x={"array": errors, "visible": any(errors), "color": _ESTIMATE},
        marker={
            "color": _ESTIMATE,
            "size": 12,
            "symbol": "diamond",
            "line": {"color": "#ffffff", "width": 1.5},
        },
        hovertemplate="estimate %{x:.2f}%<extra></extra>",
    )
    figure = go.Figure([certain, estimate])
    figure.update_layout(
        margin={"l": 0, "r": 12, "t": 8, "b": 0},
        height=130 + 34 * len(labels),
        bargap=0.6,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
        xaxis={"title": {"text": "probability (%)"}, "range": [0, 101]},
        yaxis={
            "tickmode": "array",
            "tickvals": rows,
            "ticktext": [text_label(words, _MAX_LABEL) for words, _ in labels],
            "range": [len(labels) - 0.5, -0.5],
            "automargin": True,
        },
    )
    return figure


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


_LONGEST_LABEL = 40  # characters


def class_sentence(
    options: Sequence[str], counts: Sequence[int], probabilities: Sequence[float] | None
) -> str:
    """The option that most students chose, and the model's favourite if the model was asked."""
    most, given = max(counts), sum(counts)
    if not given:
        chosen = "Nobody has answered yet."
    else:
        first = [quoted(option) for option, n in zip(options, counts, strict=True) if n == most]
        verb = "was chosen" if len(first) == 1 else "were each chosen"
        chosen = f"{listed(first)} {verb} by {most} of {counted(given, 'student')}."
    if probabilities is None:
        return chosen
    likely = max(range(len(options)), key=probabilities.__getitem__)
    return (
        f"{chosen} The model gives {quoted(options[likely])} {probabilities[likely]:.0%}, "
        "more than any other."
    )


def class_figure(
    options: Sequence[str], counts: Sequence[int], probabilities: Sequence[float] | None
) -> go.Figure:
    """The share of the answers for each option, in percent, and the model's probability."""
    labels = [text_label(option, _LONGEST_LABEL) for option in options]
    given = sum(counts)
    shares = [100 * count / given if given else 0.0 for count in counts]
    figure = go.Figure()
    _add_bars(figure, "the class", labels, shares, BLUE, "")
    if probabilities is not None:
        percent = [100 * probability for probability in probabilities]
        _add_bars(figure, "the model", labels, percent, ORANGE, "/")
    title = "answers (%)" if probabilities is None else "answers and probability (%)"
    figure.update_yaxes(title=title, range=[0, 112])
    figure.update_xaxes(type="category", tickfont_size=16)
    figure.update_layout(barmode="group")
    return laid_out(figure, 300)


def _add_bars(
    figure: go.Figure,
    name: str,
    labels: Sequence[str],
    percent: Sequence[float],
    colour: str,
    shape: str,
) -> None:
    figure.add_bar(
        name=name,
        x=list(labels),
        y=list(percent),
        text=[f"{share:.0f}%" for share in percent],
        textposition="outside",
        textfont_size=16,
        cliponaxis=False,
        marker={"color": colour, "pattern": bar_pattern(shape)},
        hovertemplate=f"{name}, %{{x}}: %{{y:.1f}}%<extra></extra>",
    )
