"""The widget of each setting, made from its declaration (eab.config). A mark in its label shows
that the value is not the page's default, and what the default is.

The widgets start with the page's values, or those of an example. What a visitor has changed stays
when another model or prompt is chosen; the rest is reset.

Also the presets (the settings that shape the tree, or those that the model recommends), and the
slider of the entropy threshold with the entropies below it on its scale and what the threshold
means for them. `page.js` follows the slider while it is dragged.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import streamlit as st

from app.server import model_cache, rules
from app.state import session
from app.state.session import KEPT, models
from app.state.tab import OpenRun
from app.widgets import model_choice
from eab import token_text
from eab.config import OF_DISTRIBUTION, SETTINGS, BranchingConfig
from eab.engine.branching.presets import PRESETS, START, THRESHOLDS
from eab.engine.remote import connection
from eab.formatting import counted, listed, shortened
from eab.run.threshold import rank_in_nats
from eab.settings import (
    THRESHOLD_SCALES,
    Buttons,
    Lines,
    Menu,
    NumberBox,
    Slider,
    Steps,
    TextArea,
    TextLine,
    ThresholdUnit,
    Toggle,
    Widget,
)

_T = TypeVar("_T")
_TEXT_HEIGHT: Final = 96  # pixels of a box for several lines
_LONGEST: Final = 40  # characters of a text quoted in a sentence
# The settings with a widget of this kind; that of the threshold follows.
FIELDS: Final = tuple(name for name, declared in SETTINGS.items() if declared.widget is not None)
_PAGE: Final = "page_of_the_widgets"  # the page that was drawn last
# The pages that explain more about a setting.
_SEE: Final = {
    "cache": "Memory",
    "r": "BMC",
    "attention": "BMC",
    "draft_length": "Speculative decoding",
}


@contextmanager
def carried_to(page: str) -> Iterator[None]:
    """Draw a page whose widgets keep their values from the previous page.

    A widget has another identity on each page, and Streamlit hands its kept value over only at the
    end of the first drawing. Until then, it would show its lowest value, and that would be read.
    """
    if st.session_state.get(_PAGE) != page:
        for key in map(str, st.session_state):
            if key == "prompt" or key.startswith("set_"):
                st.session_state[key] = st.session_state[key]
    yield
    st.session_state[_PAGE] = page  # not reached if the drawing is interrupted


def nearest(name: str, value: Any) -> Any:
    """The value offered by the widget of this setting that is nearest to the given one."""
    widget = _widget(name)
    return value if widget is None else widget.nearest(value)


def _widget(name: str) -> Widget | None:
    """The widget of a setting, limited by this server's rules and by what its models can do."""
    widget = SETTINGS[name].widget
    if name in ("max_paths", "max_new_tokens") and isinstance(widget, Slider):
        return replace(widget, high=min(widget.high, getattr(rules.current(), name)))
    if name == "drafter" and isinstance(widget, Menu) and not connection.is_allowed():
        return Menu(tuple(drafter for drafter in widget.names if drafter != "run-ahead"))
    return widget


def read(name: str, held: Any) -> Any:
    """The value of a setting whose widget holds `held`."""
    widget = SETTINGS[name].widget
    return widget.read(held) if isinstance(widget, Lines) else held


def draw(name: str, defaults: Mapping[str, Any]) -> None:
    """Draw the widget of one setting."""
    declared, key = SETTINGS[name], f"set_{name}"
    label = declared.label + mark(name, key, defaults)
    given = {"key": key, "help": help_of(name), **KEPT}
    match _widget(name):
        case Slider(low, high, step):
            st.slider(label, low, high, step=step, **given)
        case NumberBox(low, high):
            st.number_input(label, low, high, **given)
        case Steps(values) as steps:
            st.select_slider(label, values, format_func=steps.label, **given)
        case Menu(names):
            st.selectbox(label, names, **given)
        case Buttons(labels):
            st.segmented_control(
                label, list(labels), format_func=labels.__getitem__, required=True, **given
            )
        case Toggle():
            st.toggle(label, **given)
        case TextLine(example):
            st.text_input(label, placeholder=example, **given)
        case TextArea(example) | Lines(example):
            st.text_area(label, placeholder=example, height=_TEXT_HEIGHT, **given)


def help_of(name: str) -> str:
    """What a setting does, and which page explains more."""
    page = f" See the {_SEE[name]} page." if name in _SEE else ""
    return SETTINGS[name].help + page


def mark(name: str, key: str, defaults: Mapping[str, Any]) -> str:
    """The end of a label: empty while the widget has its default, else a dot and the default."""
    if st.session_state[key] == defaults[key]:
        return ""
    # plain, because screen readers read it as it is
    return f" ● default {shown(name, defaults[key])}"


def shown(name: str, value: Any) -> str:
    """A value of a setting as its widget shows it."""
    widget = SETTINGS[name].widget
    match widget:
        case Steps():
            return widget.label(value)
        case Buttons(labels):
            return labels[value]
        case Toggle():
            return "on" if value else "off"
        case Lines() if isinstance(value, tuple):
            return shown(name, widget.nearest(value))
        case TextLine() | TextArea() | Lines():
            return shortened(token_text.visible(value), _LONGEST) or "empty"
    return f"{value:g}" if isinstance(value, float) else str(value)


def choose_one(
    label: str,
    options: Sequence[_T],
    key: str,
    written: Callable[[_T], str] = str,
    place: Any = st,
) -> _T:
    """Draw a choice; it falls back to the first option once the chosen one is not offered."""
    if st.session_state.get(key) not in options:
        st.session_state[key] = options[0]
    chosen: _T = place.selectbox(label, options, format_func=written, key=key)
    return chosen


_BEGUN_WITH: Final = "begun_with"  # the values that no visitor has chosen


def defaults() -> dict[str, Any]:
    """The starting value of each widget, by its session key."""
    thresholds = {f"set_threshold_{unit}": value for unit, value in THRESHOLDS.items()}
    return _fields(START) | thresholds


def ensure() -> None:
    """Give every widget without a value its default; Streamlit forgets undrawn widgets."""
    values = defaults()
    for key, value in values.items():
        st.session_state.setdefault(key, value)
    st.session_state.setdefault(_BEGUN_WITH, values)


def of_config(config: BranchingConfig) -> dict[str, Any]:
    """The widgets' values for these settings, or the nearest ones on offer."""
    unit = config.threshold_unit
    threshold = THRESHOLD_SCALES[unit].widget.nearest(config.entropy_threshold)
    return defaults() | _fields(config) | {f"set_threshold_{unit}": threshold}


def begin_with(values: dict[str, Any]) -> None:
    """Set the widgets to values that no visitor has chosen; for callbacks."""
    session.set_widgets(values)
    st.session_state[_BEGUN_WITH] = values


def move_to(values: dict[str, Any]) -> None:
    """Set the widgets to these values, except those that a visitor has changed; for callbacks."""
    before = st.session_state.get(_BEGUN_WITH, values)
    begin_with(
        values | {key: chosen for key in values if (chosen := st.session_state[key]) != before[key]}
    )
    st.session_state[_BEGUN_WITH] = values


def reset_unchanged() -> None:
    """Reset what the visitor has not changed, for another model or prompt; for callbacks."""
    move_to(defaults())


def _fields(config: BranchingConfig) -> dict[str, Any]:
    return {f"set_{name}": nearest(name, getattr(config, name)) for name in FIELDS}


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
    held = {f"set_{setting}": nearest(setting, values[setting]) for setting in values}
    held["set_threshold_rank"] = held.pop("set_entropy_threshold")
    return held


def _is_set(name: str) -> bool:
    return all(st.session_state[key] == value for key, value in _settings(name).items())


def _apply() -> None:
    name = st.session_state[_CHOSEN]
    if name is not None:  # None: the selected preset was pressed again
        session.set_widgets(_settings(name))


_LABEL: Final = SETTINGS["entropy_threshold"].label
_NATS: Final = THRESHOLD_SCALES["nats"].widget
_SHOWN: Final = "threshold_shown"  # the slider's values before and after the page moved it


def draw_threshold(
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
        st.html(no_histogram(f"{name}: {chosen}."))
    else:
        st.html(histogram(*_entropies(shown, probe), value))


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


_BINS: Final = 40


def histogram(entropies: Sequence[float], of: str, threshold: float) -> str:
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


def no_histogram(sentence: str) -> str:
    """A sentence below the space for the bars, so that nothing moves when they appear."""
    return _figure("", sentence, "")


def _figure(bars: str, sentence: str, per_step: str) -> str:
    return (
        f'<div class="eab-entropies" data-per-step="{per_step}">'
        f'<div aria-hidden="true">{bars}</div><p>{sentence}</p></div>'
    )


def _bars(entropies: Sequence[float], threshold: float) -> str:
    width = _NATS.high / _BINS
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
    counts = [0] * (round(_NATS.high / _NATS.step) + 1)
    for entropy in entropies:
        counts[min(math.floor(entropy / _NATS.step + 1e-9), len(counts) - 1)] += 1
    return ",".join(str(count or "") for count in counts)
