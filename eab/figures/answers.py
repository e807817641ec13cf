"""The probability of each answer or label: a bar for the certain bounds, and a diamond for the
estimate, with its standard error if there is one. Also the answers of a class, compared with the
model's probabilities.
"""

from collections.abc import Sequence

from eab import token_text
from eab.analysis.answers import Answer, Answers
from eab.analysis.labels import Label
from eab.figures.charts import BLUE, ORANGE, bar_pattern, laid_out, text_label
from eab.figures.drawing import go
from eab.formatting import counted, listed, quoted

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
