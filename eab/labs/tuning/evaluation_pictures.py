"""A chart of how well each score finds wrong answers."""

from eab.figures.charts import BLUE, laid_out
from eab.figures.drawing import go
from eab.labs.tuning.evaluation_report import GREEDY, INDEPENDENT, TREE, EvaluationReport

_LOOKS = {  # by way of sampling; the symbols are a second cue besides colour
    TREE: {"color": BLUE, "symbol": "circle"},
    INDEPENDENT: {"color": "#b35900", "symbol": "diamond"},
    GREEDY: {"color": "#6b6b6b", "symbol": "square"},
}


def evaluation_figure(report: EvaluationReport) -> go.Figure:
    """The AUROC of each score for each way of sampling, with its bootstrap interval."""
    figure = go.Figure()
    for way, look in _LOOKS.items():
        rows = [row for row in report.rows if row.way == way]
        values = [row.auroc.value for row in rows]
        figure.add_scatter(
            name=f"{way}, {report.tokens[way]:,} tokens",
            mode="markers",
            x=values,
            y=[row.score for row in rows],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [row.auroc.high - row.auroc.value for row in rows],
                "arrayminus": [row.auroc.value - row.auroc.low for row in rows],
            },
            marker={**look, "size": 10},
            hovertemplate="%{y}: AUROC %{x:.3f}<extra></extra>",
        )
    figure.update_layout(
        xaxis_title="AUROC",
        yaxis={"autorange": "reversed", "automargin": True},
        scattermode="group",
    )
    return laid_out(figure)
