"""How the probability is spread over the tree: an icicle whose areas are weights.

For runs that no longer change.
"""

import math

import plotly.graph_objects as go

from eab import token_text
from eab.figures.charts import text_label
from eab.run import Path, Run

_MAX_LABEL = 40  # characters


def mass_figure(run: Run) -> go.Figure:
    """Icicle of the tree: one tile per path, as high as the weight of the leaves below it, coloured
    by its mean entropy.
    """
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
            # with branchvalues "remainder", plotly adds up the leaves itself
            values=[leaf_weight.get(path.id, 0.0) for path in paths],
            branchvalues="remainder",
            sort=False,
            tiling={"orientation": "h"},
            texttemplate="%{label}<br>%{percentRoot:.1%}",
            hovertemplate="%{label}<br>%{percentRoot:.2%} of the weight<extra></extra>",
            marker={
                "colors": [_mean_entropy(path) for path in paths],
                "colorscale": "Cividis",
                "colorbar": {"title": {"text": "mean entropy<br>(nats)"}},
                "line": {"width": 1},
            },
        )
    )
    figure.update_layout(
        margin={"l": 0, "r": 0, "t": 8, "b": 0}, height=max(240, 34 * len(leaf_weight))
    )
    return figure


def _mean_entropy(path: Path) -> float:
    return math.fsum(token.entropy for token in path.tokens) / max(1, len(path.tokens))


def _label(path: Path) -> str:
    text = token_text.visible_join(token.text for token in path.tokens).strip() or "(start)"
    return text_label(text, _MAX_LABEL)
