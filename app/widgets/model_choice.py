"""The choice of a model: the chat model, the story model, or any other one."""

import os
from collections.abc import Callable, Sequence
from typing import Final

import streamlit as st

from app.server import model_cache, rules
from app.state import session
from app.state.session import KEPT, model_download
from app.widgets.elements import plain
from eab.engine.models.packaged import SMOLLM2
from eab.engine.remote import connection
from eab.formatting import counted, human_bytes
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS, full_name, split_name

CHAT, STORIES, OTHER, SERVER = "Chat", "Stories", "Other", "Server"
EMBEDDED: Final = "embedded"
_NAMES: Final = {CHAT: SMOLLM2.name, STORIES: EMBEDDED}
_WORDS: Final = {
    SMOLLM2.name: f"**{SMOLLM2.title}**: {SMOLLM2.can}.",
    EMBEDDED: "**Story model**, 8 MB: continues very simple stories.",
}
_TITLES: Final = {SMOLLM2.name: SMOLLM2.title, EMBEDDED: "Story model, 8 MB"}
_SHORT: Final = {SMOLLM2.name: "Chat model", EMBEDDED: "Story model"}
_TOP_K_OF_SERVERS: Final = 20  # every server can return this many tokens
_POLL_SECONDS: Final = 0.5
_LISTED: Final = "model_on_this_machine"


def ensure_defaults() -> None:
    """Give every widget without a value its starting value."""
    if offered := rules.current().models:
        st.session_state.setdefault("set_model_listed", _first_here(offered))
    st.session_state.setdefault("set_model_kind", STORIES)
    st.session_state.setdefault("set_weights", AS_LOADED)
    st.session_state.setdefault("set_model_dialect", connection.DIALECTS[0])


def name() -> str:
    """The chosen model and weight format, as in app.server.model_cache; empty if none is named."""
    if offered := rules.current().models:
        listed = st.session_state.get("set_model_listed", offered[0])
        return full_name(listed, st.session_state.set_weights)
    kind = st.session_state.set_model_kind or STORIES
    if kind == SERVER:
        typed = str(st.session_state.get("set_model_server", "")).strip()
        return f"{st.session_state.set_model_dialect}:{typed}" if typed else ""
    chosen = _NAMES.get(kind) or str(st.session_state.get("set_model_other") or "").strip()
    return full_name(chosen, st.session_state.set_weights) if chosen else ""


def short(model: str) -> str:
    """The name of a model in a few words."""
    model, _ = split_name(model)
    return _SHORT.get(model) or os.path.basename(model)


def choose(model: str) -> None:
    """Set the widgets to a name that `name` returned; for callbacks."""
    model, weights = split_name(model)
    widgets = {f"set_{widget}": value for widget, value in _widgets_of(model).items()}
    session.set_widgets({"set_weights": weights, **widgets})


def _widgets_of(model: str) -> dict[str, str]:
    dialect, _, at_server = model.partition(":")
    if offered := rules.current().models:
        return {"model_listed": model if model in offered else _first_here(offered)}
    if connection.is_on_server(model) and connection.is_allowed():
        return {"model_kind": SERVER, "model_server": at_server, "model_dialect": dialect}
    if model in _NAMES.values():
        return {"model_kind": next(kind for kind, name in _NAMES.items() if name == model)}
    return {"model_kind": OTHER, "model_other": model}


def _first_here(offered: Sequence[str]) -> str:
    """The first model of the rules that can run; if none can, the first one."""
    return next((model for model in offered if not model_cache.missing(model)), offered[0])


def is_embedded() -> bool:
    """Whether the chosen model is the embedded one, in any weight format."""
    return split_name(name())[0] == EMBEDDED


def for_own_prompts() -> str:
    """The model for a visitor's prompt: the first of the rules that can run, or the chat model."""
    if offered := rules.current().models:
        return _first_here(offered)
    return SMOLLM2.name if SMOLLM2.is_here else ""


def missing(model: str, here: bool = False) -> str:
    """Why this model cannot run, or empty; `here` if the page measures caches or weights."""
    if not model:
        return "No model is named; give a folder, a GGUF file or a Hub id"
    if here and connection.is_on_server(model):
        return (
            f"{model} runs on a server, but this page measures caches and weights on this "
            "machine. Choose a local model"
        )
    return model_cache.missing(model)


def draw(on_change: Callable[[], None], here: bool = False) -> None:
    """Draw the widgets of the model."""
    ensure_defaults()
    if offered := rules.current().models:
        if len(offered) > 1:
            st.selectbox(
                "Model",
                offered,
                key="set_model_listed",
                format_func=lambda model: _TITLES.get(model, model),
                on_change=on_change,
                **KEPT,
            )
    else:
        _draw_kinds(on_change)
    chosen, _ = split_name(name())
    if chosen in _WORDS and (not offered or len(offered) > 1):
        st.caption(_WORDS[chosen])
    if chosen == SMOLLM2.name and not SMOLLM2.is_here:
        _draw_missing()
    elif problem := missing(name(), here):
        if chosen:
            st.info(f"Replay only: {plain(problem)}. Recorded runs can still be opened.")
        else:
            st.caption(f"{plain(problem)}.")


def _draw_kinds(on_change: Callable[[], None]) -> None:
    kinds = [CHAT, STORIES, OTHER, *([SERVER] if connection.is_allowed() else [])]
    kind = st.segmented_control(
        "Model",
        kinds,
        key="set_model_kind",
        required=True,
        on_change=_changed_kind,
        args=(on_change,),
        width="stretch",
        **KEPT,
    )
    if kind == SERVER:
        _draw_server()
    if kind == OTHER:
        _draw_other(on_change)


def _changed_kind(on_change: Callable[[], None]) -> None:
    """Set a top-k for a server, because a run there is exact only with one."""
    on_change()
    if st.session_state.set_model_kind == SERVER and not st.session_state.get("set_top_k"):
        st.session_state.set_top_k = _TOP_K_OF_SERVERS


def _draw_other(on_change: Callable[[], None]) -> None:
    st.text_input(
        "Folder, GGUF file or Hub id",
        key="set_model_other",
        placeholder="./model.gguf",
        on_change=on_change,
        **KEPT,
    )
    if here := _installed():
        st.selectbox(
            "On this machine",
            list(here),
            index=None,
            key=_LISTED,
            format_func=here.__getitem__,
            placeholder=f"{counted(len(here), 'model')} of other programs",
            help="Models of Ollama, LM Studio and the Hub's cache on this machine.",
            on_change=_take_listed,
            args=(on_change,),
        )


def _take_listed(on_change: Callable[[], None]) -> None:
    if st.session_state[_LISTED] is not None:
        st.session_state.set_model_other = st.session_state[_LISTED]
        on_change()


@st.cache_data(show_spinner=False, ttl=30)
def _installed() -> dict[str, str]:
    """Labels of other programs' models on this machine, by model name."""
    from eab.engine.models.sources import installed_models

    return {
        model.name: f"{os.path.basename(model.name)} · {human_bytes(model.bytes)} · {model.keeper}"
        for model in installed_models()
        if model.name not in _NAMES.values()
    }


def _draw_server() -> None:
    st.selectbox("Kind of server", connection.DIALECTS, key="set_model_dialect", **KEPT)
    st.text_input(
        "Model on the server",
        key="set_model_server",
        placeholder="embedded",
        help=(
            "A Hub id, a folder on this machine, or embedded. Its tokenizer is loaded here; the "
            "weights are on the configured server."
        ),
        **KEPT,
    )
    st.caption("A server returns only the most likely tokens. Choose a top-k from 1 to 100.")


def _draw_missing() -> None:
    polled = model_download().active

    def draw_download() -> None:
        if model_download().active and not polled:
            st.rerun()  # the button in this fragment started it
        _draw_download()

    session.fragment(draw_download, _POLL_SECONDS if polled else None)


def _draw_download() -> None:
    download = model_download()
    if download.active:
        st.progress(download.share, f"Downloading {SMOLLM2.title}: {download.share:.0%}")
        st.button("Stop the download", on_click=download.stop, key="stop_getting", width="stretch")
        return
    if SMOLLM2.is_here:
        st.rerun()  # the rest of the page is waiting for it
    if download.problem:
        st.error(plain(download.problem))
    if download.is_allowed:
        st.button(
            f"Download {SMOLLM2.offer}", on_click=_start_download, key="get_model", width="stretch"
        )
    else:
        st.info("This model is not on this server. Recorded runs can still be opened.")


@session.errors_as_message()
def _start_download() -> None:
    model_download().start()


def draw_weights() -> None:
    """Draw the choice of a weight format."""
    formats = "; ".join(f"{name}: {words}" for name, words in WEIGHT_FORMATS.items())
    st.selectbox(
        "Weights",
        list(WEIGHT_FORMATS),
        key="set_weights",
        help=f"Storage format of the weights. Fewer bits change the tokens. {formats}.",
        **KEPT,
    )
