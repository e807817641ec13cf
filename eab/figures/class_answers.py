"""The answers of a class, compared with the model's probabilities."""

from collections.abc import Sequence

from eab.figures.charts import BLUE, ORANGE, bar_pattern, laid_out, text_label
from eab.figures.drawing import go
from eab.formatting import counted, listed, quoted

_LONGEST_LABEL = 40  # characters


def answers_sentence(
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


def answers_figure(
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
