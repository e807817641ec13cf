"""How many tokens went through the model up to each step, with a KV cache and without."""

from itertools import accumulate
from typing import Final

import plotly.graph_objects as go

from eab.figures.charts import NOTHING_YET, laid_out, log_axis
from eab.formatting import times
from eab.labs.variants.cache_pictures import STYLES
from eab.labs.variants.results import VariantRuns
from eab.run import Run

_COMPARED: Final = {"tree": "with a KV cache", "recompute": "without"}


def processed_figure(compared: VariantRuns) -> go.Figure:
    """Tokens through the model up to each step, one line with a cache and one without."""
    figure = go.Figure()
    for name, words in _COMPARED.items():
        run = dict(compared.pairs).get(name)
        if run is None:
            continue
        style = STYLES[name]
        figure.add_scatter(
            name=f"{words} ({name})",
            x=[step.step for step in run.steps],
            y=processed(run),
            mode="lines",
            line={"color": style.colour, "dash": style.dash, "width": 2.5},
            hovertemplate=f"{words}, step %{{x}}: %{{y:,}} tokens<extra></extra>",
        )
    figure.update_xaxes(title="step")
    figure.update_yaxes(log_axis("tokens through the model so far"))
    return laid_out(figure)


def processed_sentence(compared: VariantRuns) -> str:
    """How many tokens both take in the end."""
    runs = dict(compared.pairs)
    if any(name not in runs or not runs[name].steps for name in _COMPARED):
        return NOTHING_YET
    with_cache, without = (runs[name].tokens_through_model() for name in _COMPARED)
    return (
        f"With a KV cache, {with_cache:,} tokens go through the model; without one, {without:,}, "
        f"or {times(without / with_cache)} as many (measured)."
    )


def processed(run: Run) -> list[int]:
    """Tokens through the model up to each step, the prompt included."""
    return [*accumulate(step.timing.tokens if step.timing else 0 for step in run.steps)]
