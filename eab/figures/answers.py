"""The probability of each answer: a bar for the certain bounds, a diamond for the estimate."""

from eab import token_text
from eab.analysis.answers import Answer, Answers
from eab.figures.charts import BLUE, text_label
from eab.figures.drawing import go

DRAWN = 24  # only the most likely answers; the table has all of them
_MAX_LABEL = 48  # characters
_ESTIMATE = "#b35900"  # its shape and white edge also distinguish it from the bar


def answers_figure(answers: Answers) -> go.Figure:
    """One row per answer, the most likely at the top, with its probability in percent."""
    drawn = answers.ranked[:DRAWN]
    rows = list(range(len(drawn)))
    certain = go.Bar(
        name="certain bounds of the probability",
        orientation="h",
        y=rows,
        base=[100 * answer.low for answer in drawn],
        x=[100 * (answer.high - answer.low) for answer in drawn],
        marker={"color": BLUE},
        customdata=[[answer.low, answer.high] for answer in drawn],
        hovertemplate="at least %{customdata[0]:.2%}, at most %{customdata[1]:.2%}<extra></extra>",
    )
    estimate = go.Scatter(
        name="estimated from the weights",
        mode="markers",
        y=rows,
        x=[100 * answer.weight for answer in drawn],
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
        height=130 + 34 * len(drawn),
        bargap=0.6,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
        xaxis={"title": {"text": "probability (%)"}, "range": [0, 101]},
        yaxis={
            "tickmode": "array",
            "tickvals": rows,
            "ticktext": [_label(answer) for answer in drawn],
            "range": [len(drawn) - 0.5, -0.5],
            "automargin": True,
        },
    )
    return figure


def _label(answer: Answer) -> str:
    return text_label(token_text.visible(answer.text) or "(nothing)", _MAX_LABEL)
