"""An icicle chart of the tree with areas proportional to weights, for finished runs."""

from eab import token_text
from eab.figures.charts import text_label
from eab.figures.drawing import go
from eab.run import Path, RunState, mean_entropy_of

_MAX_LABEL = 40  # characters
_SURE_TO_UNSURE = ["#b8c9d6", "#c99a2e", "#5a1250"]  # the same colours as tokens on the board
_DARK = 0.68  # above this share of the scale, white text has more contrast than black text


def icicle_figure(run: RunState) -> go.Figure:
    """One tile per path; its height is the weight of its leaves, its colour its mean entropy."""
    leaf_weight = {leaf.id: leaf.weight for leaf in run.leaves()}
    below = dict(leaf_weight)
    for path in reversed([*run.in_tree_order()]):
        below[path.parent] = below.get(path.parent, 0.0) + below.get(path.id, 0.0)
    paths = [path for path in run.paths if below.get(path.id)]
    entropies = [_mean_entropy(path) for path in paths]
    highest = max(entropies, default=0.0) or 1.0
    figure = go.Figure(
        go.Icicle(
            ids=[str(path.id) for path in paths],
            parents=["" if path.parent < 0 else str(path.parent) for path in paths],
            labels=[_label(path) for path in paths],
            # with branchvalues "remainder", plotly itself adds up the leaves
            values=[leaf_weight.get(path.id, 0.0) for path in paths],
            branchvalues="remainder",
            sort=False,
            tiling={"orientation": "h"},
            texttemplate="%{label}<br>%{percentRoot:.1%}",
            hovertemplate="%{label}<br>%{percentRoot:.2%} of the weight<extra></extra>",
            textfont={"color": [_ink(entropy / highest) for entropy in entropies]},
            marker={
                "colors": entropies,
                "cmin": 0,
                "cmax": highest,
                "colorscale": _SURE_TO_UNSURE,
                "colorbar": {"title": {"text": "mean entropy<br>(nats)"}},
                "line": {"width": 1},
            },
        )
    )
    figure.update_layout(
        margin={"l": 0, "r": 0, "t": 8, "b": 0}, height=max(240, 34 * len(leaf_weight))
    )
    return figure


def _ink(share: float) -> str:
    return "white" if share > _DARK else "black"


def _mean_entropy(path: Path) -> float:
    return mean_entropy_of(path.tokens) or 0.0


def _label(path: Path) -> str:
    text = token_text.visible_join(token.kept for token in path.tokens).strip() or "(start)"
    return text_label(text, _MAX_LABEL)
