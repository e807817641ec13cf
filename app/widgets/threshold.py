"""The presets (the settings that shape the tree, or those that the model recommends), the slider of
the entropy threshold, the entropies below it on its scale, and what the threshold means for them.
`page.js` follows the slider while it is dragged.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from app.server import model_cache
from app.state.status import models
from app.state.tab import OpenRun
from app.widgets import board, model_choice, setting_widgets
from app.widgets.setting_widgets import KEPT, help_of, mark
from eab.config import OF_DISTRIBUTION, SETTINGS
from eab.engine.branching.presets import PRESETS, START
from eab.formatting import counted, listed
from eab.run.threshold import rank_in_nats
from eab.settings import THRESHOLD_SCALES, ThresholdUnit

_NAMES: Final = {preset.capitalize(): preset for preset in PRESETS}
_OWN: Final = "Model's own"  # only if the model recommends something
_CHOSEN: Final = "preset"


def draw_presets() -> None:
    """Draw the choice of a preset; one is selected while the settings match it."""
    st.session_state[_CHOSEN] = chosen_preset()
    words = [f"{name}: {PRESETS[preset].help}" for name, preset in _NAMES.items()]
    recommended = listed([f"{name} {value:g}" for name, value in _recommended().items()])
    own = [f"{_OWN}: {recommended}"] if recommended else []
    st.segmented_control(
        "Preset",
        _offered(),
        key=_CHOSEN,
        on_change=_apply,
        help="; ".join([*words, *own]) + ".",
        width="stretch",
    )


def _recommended() -> dict[str, float]:
    """The settings that the model recommends, as far as known without loading it."""
    return model_cache.recommended(model_choice.name(), models().peek(model_choice.name()))


def chosen_preset() -> str | None:
    """The preset that the settings match, as the page names it; None if they match none."""
    return next((name for name in _offered() if _is_set(name)), None)


def _offered() -> list[str]:
    return [*_NAMES, *([_OWN] if _recommended() else [])]


def _settings(name: str) -> dict[str, Any]:
    values: dict[str, Any] = dict(PRESETS[_NAMES.get(name, "balanced")].settings)
    # If sampling left only a few tokens, a larger branch factor would have no effect.
    values |= {sampling: getattr(START, sampling) for sampling in OF_DISTRIBUTION}
    if name == _OWN:
        values |= _recommended()
    held = {
        f"set_{setting}": setting_widgets.nearest(setting, values[setting]) for setting in values
    }
    held["set_threshold_rank"] = held.pop("set_entropy_threshold")
    return held


def _is_set(name: str) -> bool:
    return all(st.session_state[key] == value for key, value in _settings(name).items())


def _apply() -> None:
    name = st.session_state[_CHOSEN]
    if name is not None:  # None: the selected preset was pressed again
        board.set_widgets(_settings(name))


_LABEL: Final = SETTINGS["entropy_threshold"].label
_NATS: Final = THRESHOLD_SCALES["nats"].widget
_SHOWN: Final = "threshold_shown"  # the slider's values before and after the page moved it


def draw(
    defaults: dict[str, object], shown: OpenRun | None = None, probe: Sequence[float] | None = None
) -> None:
    """Draw the slider and, below it, where the threshold stands among entropies of this model.

    While the threshold is a rank, the slider shows its value in nats; moving the slider sets
    the threshold in nats. The entropies (nats) are those of the run shown, if Run would give the
    same ones, or else those of a greedy probe.
    """
    unit: ThresholdUnit = st.session_state.set_threshold_unit
    if unit == "normalised":
        _slider(unit, mark("entropy_threshold", f"set_threshold_{unit}", defaults))
        st.caption("Forks at this share of ln V, the largest possible entropy.")
        return
    nats = 0.0
    if unit == "rank" and probe is not None:
        nats = rank_in_nats(probe, st.session_state.set_threshold_rank)
        _show(_NATS.nearest(round(nats, 2)))
    value = _slider("nats", "" if unit == "rank" else " ● by hand")
    if nats > _NATS.high:
        value = nats
        st.caption(f"The threshold is {nats:.2f} nats, beyond the end of this slider.")
    if unit == "rank" and probe is None:  # unknown until Run if the model is not loaded here
        rank = st.session_state.set_threshold_rank
        name = chosen_preset() or "This setting"
        chosen = f"Run sets the threshold by the entropies of a greedy run (rank {rank:g})"
        st.html(empty(f"{name}: {chosen}."))
    else:
        st.html(html(*_entropies(shown, probe), value))


def _entropies(shown: OpenRun | None, probe: Sequence[float] | None) -> tuple[Sequence[float], str]:
    """The entropies to draw (nats), and whose they are; an active run has only some of them yet."""
    run = shown.run if shown is not None and not shown.active else None
    of_run = run.entropies() if run else []
    return (of_run, "") if of_run or probe is None else (probe, " of a greedy run")


def draw_rank(defaults: dict[str, object]) -> None:
    """Draw the slider of the rank, if the threshold is one."""
    if st.session_state.set_threshold_unit == "rank":
        _slider("rank", mark("entropy_threshold", "set_threshold_rank", defaults))


def _slider(unit: ThresholdUnit, mark: str) -> float:
    scale = THRESHOLD_SCALES[unit]
    chosen: float = st.slider(
        (_LABEL if unit != "rank" else "Threshold rank") + mark,
        scale.widget.low,
        scale.widget.high,
        step=scale.widget.step,
        format=f"%.2f {unit}" if unit != "rank" else "%d",
        key=f"set_threshold_{unit}",
        help=f"{help_of('entropy_threshold')} {scale.help}",
        on_change=_take_nats if unit == "nats" else None,
        **KEPT,
    )
    return chosen


def _show(nats: float) -> None:
    """Move the slider to the value of the rank in nats."""
    before = st.session_state.get("set_threshold_nats")
    if nats != before:
        st.session_state[_SHOWN] = (before, nats)
        st.session_state.set_threshold_nats = nats


def _take_nats() -> None:
    """Use the slider's value as the threshold, if the user moved it.

    After the page has moved the slider, a late message of the browser still has the old value, and
    the next one has the new value; nobody moved the slider then.
    """
    is_late = st.session_state.set_threshold_nats in st.session_state.get(_SHOWN, ())
    if st.session_state.set_threshold_unit != "rank" or not is_late:
        st.session_state.set_threshold_unit = "nats"


_SLIDER: Final = THRESHOLD_SCALES["nats"].widget
_BINS: Final = 40


def html(entropies: Sequence[float], of: str, threshold: float) -> str:
    """Bars as high as the square roots of their counts, and a sentence; the last bar includes all
    entropies beyond the slider. All numbers are in nats. `of` follows "tokens" and says whose they
    are.
    """
    above = sum(entropy >= threshold for entropy in entropies)
    tokens = f": <b data-above>{above:,}</b> of {counted(len(entropies), 'token')}{of}"
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
