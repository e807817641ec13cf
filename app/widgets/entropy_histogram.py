"""The entropies below the threshold slider, on its scale, and what the threshold means for them.
`page.js` follows the slider while it is dragged.
"""

import math
from collections.abc import Sequence
from typing import Final

from eab.formatting import counted
from eab.threshold_scales import THRESHOLD_SCALES

_SLIDER: Final = THRESHOLD_SCALES["nats"].widget
_BINS: Final = 40


def html(entropies: Sequence[float], of: str, threshold: float, note: str) -> str:
    """Bars as high as the square roots of their counts, and a sentence; the last bar includes all
    entropies beyond the slider. All numbers are in nats. `of` follows "tokens" and says whose they
    are; `note` is true only at exactly this threshold.
    """
    above = sum(entropy >= threshold for entropy in entropies)
    tokens = (
        f": <b data-above>{above:,}</b> of {counted(len(entropies), 'token')}{of}"
        f'<span data-note="{threshold:g}">{note}</span>'
    )
    sentence = (
        f"Unsure (≥ <b data-choices>{math.exp(threshold):.1f}</b> equally likely tokens)"
        f"{tokens if entropies else ''}."
    )
    return _figure(_bars(entropies, threshold), sentence, _per_step(entropies))


def empty(sentence: str) -> str:
    """A sentence below the space for the bars, so that nothing moves when they appear."""
    return _figure("", sentence, "")


def _figure(bars: str, sentence: str, per_step: str) -> str:
    return (
        f'<div class="eab-entropies" data-per-step="{per_step}">'
        f'<div aria-hidden="true">{bars}</div><p>{sentence}</p></div>'
    )


def _bars(entropies: Sequence[float], threshold: float) -> str:
    width = _SLIDER.high / _BINS
    counts = [0] * _BINS
    for entropy in entropies:
        counts[min(int(entropy / width), _BINS - 1)] += 1
    most = math.sqrt(max(counts)) or 1.0
    return "".join(
        f'<i style="height:{math.sqrt(count) / most:.0%}"'
        f"{' class=fork' if (index + 0.5) * width >= threshold else ''}></i>"
        for index, count in enumerate(counts)
    )


def _per_step(entropies: Sequence[float]) -> str:
    """How many entropies lie between each step of the slider (included) and the next."""
    counts = [0] * (round(_SLIDER.high / _SLIDER.step) + 1)
    for entropy in entropies:
        counts[min(math.floor(entropy / _SLIDER.step + 1e-9), len(counts) - 1)] += 1
    return ",".join(str(count or "") for count in counts)
