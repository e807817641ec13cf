"""The widgets of the sidebar and the prompt: what to run, and with which settings.

The widgets of the settings are made from their declarations (eab.config). They offer what is useful
on a page; the engine checks every value again.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import streamlit as st

from app.server import tasks
from app.server.tasks import LiveRun
from app.state import session, what_if
from app.state.session import KEPT, worker
from app.state.tab import OpenRun
from app.widgets import model_choice, setting_widgets
from app.widgets.elements import plain
from app.widgets.setting_widgets import FIELDS
from eab.config import OF_POLICIES, SETTINGS, BranchingConfig, DrafterName
from eab.errors import EabError
from eab.formatting import counted, excerpt, human_seconds, listed
from eab.run import RunState
from eab.run.events import Message, RunStarted
from eab.run.events.chat import messages_of_rendered, notices, title_of
from eab.settings import THRESHOLD_SCALES

QUESTIONS: Final = ("Why do cats purr?", "Name a pet robot.", "Tell me a joke.")
_OPENED: Final = "messages_of_the_prompt"  # those of the run that the widgets were set to
_BEFORE: Final = "messages_before_the_prompt"
_MAX_QUOTED: Final = 60  # characters of the quoted text


def keep_messages(messages: tuple[Message, ...]) -> None:
    """Keep the messages of the run that the widgets are set to; for callbacks."""
    st.session_state[_OPENED], st.session_state[_BEFORE] = messages, ()


def messages_with(prompt: str) -> tuple[Message, ...]:
    """The messages to run: a reply, or the messages of the run that the widgets were set to while
    its prompt is unchanged. Empty if the prompt stands alone.
    """
    if before := _before():
        return (*before, Message("user", prompt)) if prompt.strip() else ()
    opened: tuple[Message, ...] = st.session_state.get(_OPENED, ())
    return opened if opened and title_of(opened) == prompt else ()


def can_reply_to(run: RunState) -> bool:
    """Whether a run is a chat that has ended with a text."""
    return run.started.is_chat and run.ended is not None and bool(run.samples[0].text.strip())


def draw_reply(run: RunState, redraw_page: Callable[[], None]) -> None:
    """Draw a button that adds the likeliest text to the chat; the next prompt replies to it."""

    def reply() -> None:
        _reply(run)
        redraw_page()  # the prompt is outside this fragment

    st.button(
        "Reply",
        on_click=reply,
        icon=":material/reply:",
        key="reply_button",
        help="Takes the most likely text as the model's answer. Then write the next message.",
    )


def draw_replied_to() -> bool:
    """Say what the prompt replies to, with a button to forget it; False if it is no reply."""
    before = _before()
    if not before:
        return False
    text = excerpt(" ".join(before[-1].content.split()), _MAX_QUOTED)
    st.caption(f"Your next prompt replies to “{plain(text)}”.")
    st.button("New chat", on_click=keep_messages, args=((),), key="new_chat_button")
    return True


def _before() -> tuple[Message, ...]:
    before: tuple[Message, ...] = st.session_state.get(_BEFORE, ())
    return before


def _reply(run: RunState) -> None:
    started = run.started
    system = started.config.system
    asked = started.messages or (Message("user", started.prompt),)
    if asked[-1].role == "assistant":  # the run continued this message
        asked, begun = asked[:-1], asked[-1].content
    else:
        begun = ""
    answer = Message("assistant", begun + run.samples[0].text)
    st.session_state[_BEFORE] = (*asked, answer)
    st.session_state.prompt = ""
    st.session_state.set_system = system


_ADVANCED: Final = "advanced_is_open"
_EXPANDER: Final = "advanced"  # its key; Streamlit keeps the value only while it is drawn
_FILLED: Final = "filled_prompt"  # the prompt that the widgets were filled with
_MOVED: Final = "moved_prompt"  # the prompt for which another model was chosen
_VARIED_WITH: Final = {"drafter": ("drafter", "draft_length")}


def ensure_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    session.set_again()
    model_choice.ensure_defaults()
    setting_widgets.ensure()


def fill_from(
    prompt: str,
    config: BranchingConfig,
    model: str,
    messages: tuple[Message, ...] = (),
) -> None:
    """Set the widgets to a run's prompt, model and settings, or the nearest; keep its messages."""
    set_prompt(prompt)
    st.session_state[_FILLED] = prompt
    keep_messages(messages)
    model_choice.choose(model)
    setting_widgets.begin_with(setting_widgets.of_config(config))


def run_bar(
    on_run: Callable[[], None],
    on_stop: Callable[[], None],
    active: bool,
    before: Callable[[], None] | None = None,
    here: bool = False,
    on_prompt: Callable[[], None] | None = None,
) -> None:
    """Draw the prompt, Run (disabled without its model) or Stop, and the model that answers."""
    with st.container(horizontal=True, vertical_alignment="center", key="run_bar"):
        if before is not None:
            before()
        st.text_area(
            "Prompt",
            key="prompt",
            placeholder="What should the model continue?",
            label_visibility="collapsed",
            on_change=on_prompt,
            **KEPT,
        )
        with st.container(key="run_or_stop"):
            _run_or_stop(on_run, on_stop, active, model_missing(here))
            st.caption(plain(model_choice.short(model_choice.name())))
    _notices()


def _notices() -> None:
    """Say below the prompt what may not be meant, and offer to read a rendered chat as messages."""
    written = messages() or prompt()
    for notice in notices(written):
        st.caption(plain(notice))
    if isinstance(written, str) and (chat := messages_of_rendered(written)):
        st.button("Read as messages", on_click=_read_as, args=(chat,), key="read_as_messages")


def _read_as(chat: tuple[Message, ...]) -> None:
    st.session_state.prompt = title_of(chat)
    keep_messages(chat)


def _run_or_stop(
    on_run: Callable[[], None], on_stop: Callable[[], None], active: bool, missing: str
) -> None:
    if active:
        st.button("Stop", on_click=on_stop, icon=":material/stop:", key="stop_button")
        return
    st.button(
        "Run",
        on_click=on_run,
        type="primary",
        icon=":material/play_arrow:",
        key="run_button",
        disabled=bool(missing),
        help=missing or None,
    )


def model_missing(here: bool = False) -> str:
    """Why the chosen model cannot run, or empty; `here` if the page measures caches or weights."""
    return model_choice.missing(model_choice.name(), here)


def sidebar(varied: str = "", here: bool = False, on_screen: OpenRun | None = None) -> None:
    """Draw all widgets of a run, except the setting that this page varies."""
    choose_model(here)
    defaults = setting_widgets.defaults()
    hidden = _VARIED_WITH.get(varied, (varied,))
    for policy, own in OF_POLICIES.items():
        hidden = hidden if st.session_state.set_policy == policy else (*hidden, *own)
    if st.session_state.set_stop_when != "explored":
        hidden = (*hidden, "explored_goal")
    names = [name for name in FIELDS if name not in hidden]
    setting_widgets.draw_presets()
    _threshold(defaults, on_screen)
    for name in names:
        if not SETTINGS[name].advanced:
            setting_widgets.draw(name, defaults)
    _estimate()
    advanced = [name for name in names if SETTINGS[name].advanced]
    is_open = st.session_state.get(_ADVANCED, False)
    with st.expander("Advanced", is_open, key=_EXPANDER, on_change=_note_expander):
        model_choice.draw_weights()
        for group in dict.fromkeys(SETTINGS[name].group for name in advanced):
            st.markdown(f"**{group}**")
            for name in advanced:
                if SETTINGS[name].group == group:
                    setting_widgets.draw(name, defaults)
            if group == SETTINGS["threshold_unit"].group:
                setting_widgets.draw_rank(defaults)
    _reset_button()


def _note_expander() -> None:
    """Note whether it is open, because Streamlit forgets this with the page."""
    st.session_state[_ADVANCED] = st.session_state[_EXPANDER]


def _threshold(defaults: dict[str, object], on_screen: OpenRun | None) -> None:
    """Draw the threshold slider. The entropies below it are those of the run on the screen, if Run
    would make the same one apart from the shape of its tree, and else those of a greedy probe.
    """
    try:
        config = BranchingConfig.from_settings(settings())
    except EabError:  # pressing Run explains it
        on_screen = None
    if on_screen is None:
        return setting_widgets.draw_threshold(defaults)
    asked = what_if.probe_of(model_choice.name(), prompt(), messages(), config)
    shown = on_screen if what_if.is_probe_of(asked, on_screen) else None
    unit = config.threshold_unit
    needed = unit == "rank" or (unit == "nats" and shown is None)
    setting_widgets.draw_threshold(
        defaults, shown, what_if.probe_entropies(asked, on_screen) if needed else None
    )


def _estimate() -> None:
    try:
        config = BranchingConfig.from_settings(settings())
    except EabError:
        return  # pressing Run explains it
    needs = tasks.run_seconds(config, model_choice.name(), worker().remembered)
    about = f", about {human_seconds(needs)}" if needs is not None else ""
    st.caption(f"Run: at most {counted(tasks.most_tokens(config), 'token')}{about}.")


def _changed_settings() -> int:
    state, defaults = st.session_state, setting_widgets.defaults()
    in_use = f"set_threshold_{state.set_threshold_unit}"
    thresholds = {f"set_threshold_{unit}" for unit in THRESHOLD_SCALES} - {in_use}
    return sum(state[key] != value for key, value in defaults.items() if key not in thresholds)


def reset() -> None:
    """Set all settings to the page's defaults; for callbacks."""
    setting_widgets.begin_with(setting_widgets.defaults())


def leave_example(started: RunStarted) -> None:
    """Reset to the model's settings if the prompt is no longer that of the example.

    An example chooses its model and settings for its own prompt: a few tokens, say, or two
    candidates. They would spoil other texts. What the visitor has changed stays, and so do the
    settings of a link with a prompt.
    """
    if st.session_state.get(_FILLED) != started.prompt or prompt() in (started.prompt, ""):
        return
    st.session_state[_FILLED] = ""
    if started.model.name == model_choice.EMBEDDED == model_choice.name():
        model_choice.choose(model_choice.for_own_prompts() or model_choice.EMBEDDED)
        st.session_state[_MOVED] = prompt()
    setting_widgets.reset_unchanged()


def moved_prompt() -> str:
    """A sentence if the prompt goes to another model than the one of the example it replaced."""
    moved = st.session_state.get(_MOVED, "")
    if not moved or moved != prompt() or model_choice.is_embedded():
        return ""
    model = plain(model_choice.short(model_choice.name()))
    return f"Own prompts go to another model: {model}. The story model only continues stories."


def draw_progress(live: LiveRun) -> None:
    """Draw the progress of the run."""
    live.mark_watched()
    share, words = session.progress(live)
    own = live.state.run.started.model.memory_words if live.state.run is not None else ""
    moved = "" if live.job.begun else moved_prompt()  # of the run itself, not of what extends it
    own = f"{moved} {own}".strip()
    st.progress(share, plain(f"{words}. {own}") if own else words)


def _reset_button() -> None:
    changed = _changed_settings()
    st.button(
        f"Reset {counted(changed, 'setting')}" if changed else "Reset",
        on_click=reset,
        disabled=not changed,
        key="reset_button",
        width="stretch",
        help="Sets all settings to their defaults. The prompt and the model stay.",
    )


def prompt() -> str:
    """The prompt, as typed."""
    return str(st.session_state.prompt)


def set_prompt(words: str) -> None:
    """Set the prompt; for callbacks."""
    session.set_widgets({"prompt": words})


def messages() -> tuple[Message, ...]:
    """The messages that replace the prompt; see `messages_with`."""
    return messages_with(prompt())


def apply(widgets: dict[str, Any]) -> None:
    """Set these widgets, by their keys without `set_`; for callbacks."""
    session.set_widgets({f"set_{name}": value for name, value in widgets.items()})


def settings() -> dict[str, Any]:
    """The settings as the widgets show them now; callbacks already see the latest change."""
    state = st.session_state
    values = {key: state.get(key, value) for key, value in setting_widgets.defaults().items()}
    # A page need not draw all of them.
    chosen = {name: setting_widgets.read(name, values[f"set_{name}"]) for name in FIELDS}
    chosen["entropy_threshold"] = values[f"set_threshold_{chosen['threshold_unit']}"]
    return chosen | {"seed": int(chosen["seed"])}


def choose_model(here: bool = False) -> None:
    """Draw the widgets of the model."""
    model_choice.draw(setting_widgets.reset_unchanged, here)


def choose_drafter(drafters: Sequence[DrafterName], key: str) -> None:
    """Draw a choice of these drafters, for pages on which it is not a setting of the run."""
    declared = SETTINGS["drafter"]
    st.selectbox(declared.label, drafters, key=key, help=declared.help, **KEPT)


def changed_since(started: RunStarted | None) -> str:
    """A sentence on how the widgets differ from the run on the screen; empty if they do not."""
    if started is None:
        return ""
    asked = (prompt(), messages())
    others = ["prompt"] * (asked != (started.prompt, started.messages))
    others += ["model"] * (model_choice.name() != started.model.full_name)
    if others:
        words = f"What is shown was made with another {listed(others)}. Press Run to use yours."
        return moved_prompt() or words
    chosen = _chosen()
    rank = "rank " if started.config.threshold_unit == "rank" else ""
    changed = [
        f"{SETTINGS[name].label.lower()} (was {rank if name == 'entropy_threshold' else ''}"
        f"{setting_widgets.shown(name, recorded)})"
        for name, recorded in _recorded(started.config).items()
        if chosen[name] != recorded
    ]
    return (
        f"Changed since this run: {plain(listed(changed))}. Press Run to apply." if changed else ""
    )


def _chosen() -> dict[str, Any]:
    """The settings as a config holds them, if they are valid: typed JSON is then normalised."""
    try:
        config = BranchingConfig.from_settings(settings())
    except EabError:
        return settings()
    return _recorded(config)


def _recorded(config: BranchingConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("entropy_threshold", *FIELDS)}
