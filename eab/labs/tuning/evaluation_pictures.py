"""What a recorded `eab evaluate --json` says: how well each score finds wrong answers."""

from collections.abc import Mapping
from typing import Any, Final

from eab.figures.charts import BLUE, laid_out
from eab.figures.drawing import go

_LOOKS = {  # by way of sampling; shapes as a second cue
    "tree": {"color": BLUE, "symbol": "circle"},
    "independent": {"color": "#b35900", "symbol": "diamond"},
    "greedy": {"color": "#6b6b6b", "symbol": "square"},
}


ROW_HEADINGS: Final = ("Score", "Texts from", "AUROC", "AURAC")


def evaluation_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row per score and way of sampling, under ROW_HEADINGS."""
    return [
        (row["score"], row["way"], _written(row["auroc"]), _written(row["aurac"]))
        for row in report["rows"]
    ]


def _written(interval: Mapping[str, float]) -> str:
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})"


def evaluation_figure(report: Mapping[str, Any]) -> go.Figure:
    """The AUROC of each score for each way of sampling, with its bootstrap interval."""
    figure = go.Figure()
    for way, look in _LOOKS.items():
        rows = [row for row in report["rows"] if row["way"] == way]
        values = [row["auroc"]["value"] for row in rows]
        figure.add_scatter(
            name=f"{way}, {report['tokens'][way]:,} tokens",
            mode="markers",
            x=values,
            y=[row["score"] for row in rows],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [row["auroc"]["high"] - row["auroc"]["value"] for row in rows],
                "arrayminus": [row["auroc"]["value"] - row["auroc"]["low"] for row in rows],
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


def evaluation_sentence(report: Mapping[str, Any]) -> str:
    """Whether the tree helps, also if it does not, and which score finds wrong answers best."""
    words: str = report["verdict"]
    if not report["rows"]:
        return words
    best = max(report["rows"], key=lambda row: row["auroc"]["value"])
    low, high = best["auroc"]["low"], best["auroc"]["high"]
    return (
        f"{words} Of all scores, {best['score']} ({best['way']}) has the highest AUROC, "
        f"{best['auroc']['value']:.3f}, from {low:.3f} to {high:.3f}."
    )
