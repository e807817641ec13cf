"""Saved runs: save, open, rename, delete and undo."""

from collections.abc import Callable, Sequence

import streamlit as st

from app.server.store import SavedRun, Store, default_store
from app.state import messages, tab
from app.widgets.markdown import plain
from eab import token_text
from eab.board.layout import shorten
from eab.errors import EabError
from eab.events import Event
from eab.formatting import as_sentence

CHOSEN = "saved_run"  # key of the list of saved runs; its value is the id of one


def gallery(on_open: Callable[[], None], to_save: Sequence[Event] | None, name: str) -> None:
    """Draw the list of saved runs with all that can be done with them.

    Args:
        on_open: Called when another saved run is chosen.
        to_save: The events of the run on the page; None if it cannot be saved now.
        name: Its name if the user types none.
    """
    store = default_store()
    if store is None:
        st.caption("Saved runs are switched off on this server. Download the run file instead.")
        return
    try:
        saved = {run.id: run for run in store.all()}
    except EabError as error:
        st.error(plain(as_sentence(str(error))))
        return
    _choice(saved, on_open)
    chosen = saved.get(st.session_state[CHOSEN])
    if chosen is not None:
        _change(store, chosen)
    _undo(store)
    if to_save is not None:
        _save(store, to_save, name)
    st.caption("Stored on the server: everyone with access can see, rename and delete these.")


def _choice(saved: dict[str, SavedRun], on_open: Callable[[], None]) -> None:
    if st.session_state.get(CHOSEN) not in saved:
        st.session_state[CHOSEN] = None  # another user may have deleted it
    st.selectbox(
        "Open",
        list(saved),
        index=None,
        format_func=lambda run_id: _label(saved[run_id]),
        key=CHOSEN,
        on_change=on_open,
        placeholder="Choose one" if saved else "None yet",
        disabled=not saved,
    )


def _label(run: SavedRun) -> str:
    return f"{token_text.visible(run.name)} · {run.saved_at[:10]} {run.saved_at[11:16]}"


# The text fields have no `max_chars`: the browser would drop a longer text without a word, where
# the store says what is wrong with it.


def _change(store: Store, chosen: SavedRun) -> None:
    key = f"rename_{chosen.id}"
    st.session_state.setdefault(key, chosen.name)
    st.text_input("Name of this run", key=key)
    left, right = st.columns(2)
    left.button(
        "Rename",
        on_click=_rename,
        args=(store, chosen.id, key),
        key="rename_button",
        width="stretch",
    )
    right.button(
        "Delete", on_click=_delete, args=(store, chosen), key="delete_button", width="stretch"
    )


def _rename(store: Store, run_id: str, key: str) -> None:
    if _try(lambda: tab.retitle_saved(run_id, store.rename(run_id, st.session_state[key]))):
        st.session_state[CHOSEN] = run_id  # sent to the browser, which would keep the old name


def _delete(store: Store, chosen: SavedRun) -> None:
    if _try(lambda: store.delete(chosen.id)):
        st.session_state.deleted_run = chosen


def _undo(store: Store) -> None:
    deleted: SavedRun | None = st.session_state.get("deleted_run")
    if deleted is None:
        return
    st.caption(f"Deleted: {plain(token_text.visible(deleted.name))}")
    st.button("Undo", on_click=_restore, args=(store, deleted), key="undo_button")


def _restore(store: Store, deleted: SavedRun) -> None:
    st.session_state.deleted_run = None
    _try(lambda: store.restore(deleted.id))


def _save(store: Store, events: Sequence[Event], name: str) -> None:
    suggested = shorten(" ".join(token_text.visible(name).split()), 40)
    st.text_input("Save as", key="save_name", placeholder=suggested)
    st.button(
        "Save this run",
        on_click=_keep,
        args=(store, events, suggested),
        key="save_button",
        width="stretch",
    )


def _keep(store: Store, events: Sequence[Event], suggested: str) -> None:
    if _try(lambda: store.save(st.session_state.save_name.strip() or suggested, events)):
        st.session_state.save_name = ""
        st.toast("Saved")


def _try(act: Callable[[], object]) -> bool:
    """Do it, or explain on the page why it failed; whether it succeeded."""
    messages.clear()
    try:
        act()
    except EabError as error:
        messages.notify(str(error))
        return False
    return True
