"""Where the probability mass went: an icicle whose areas are weights. For runs that no longer change."""

import html

import plotly.graph_objects as go

from eab import token_text
from eab.run import Path, Run

_LONGEST_LABEL = 40


def mass_figure(run: Run) -> go.Figure:
    """Icicle of the tree: one tile per path, as wide as the weight of the leaves below it."""
    leaf_weight = {leaf.id: leaf.weight for leaf in run.leaves()}
    below = dict(leaf_weight)
    for path in reversed(run.paths):  # children are born after their parent
        below[path.parent] = below.get(path.parent, 0.0) + below.get(path.id, 0.0)
    paths = [path for path in run.paths if below.get(path.id)]
    figure = go.Figure(
        go.Icicle(
            ids=[str(path.id) for path in paths],
            parents=["" if path.parent < 0 else str(path.parent) for path in paths],
            labels=[_label(path) for path in paths],
            values=[leaf_weight.get(path.id, 0.0) for path in paths],  # branchvalues "remainder": leaves carry the mass
            branchvalues="remainder",
            sort=False,
            tiling={"orientation": "h"},
            texttemplate="%{label}<br>%{percentRoot:.1%}",
            hovertemplate="%{label}<br>%{percentRoot:.2%} of the probability mass<extra></extra>",
            marker={"colorscale": "Cividis", "line": {"width": 1}},
        )
    )
    figure.update_layout(margin={"l": 0, "r": 0, "t": 8, "b": 0}, height=420)
    return figure


def _label(path: Path) -> str:
    text = token_text.visible_join(token.text for token in path.tokens).strip() or "(start)"
    return html.escape(text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…")
