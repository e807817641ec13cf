"""What can be opened: examples, what is saved on the server (save, open, rename, delete), a
visitor's file, and the runs of this tab.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic

import streamlit as st

from app.server import rules
from app.server.store import RUNS, Kept, Kind, NamedStore, Saved, default_store
from app.state import compare, session, tab
from app.state.compare import PastRun
from app.widgets import controls
from app.widgets.elements import plain
from app.widgets.setting_widgets import shown
from eab import token_text
from eab.board.still import shorten
from eab.config import SETTINGS
from eab.errors import EabError
from eab.formatting import as_sentence
from eab.lessons import bundled_runs
from eab.run.events import Event
from eab.token_text import visible


@dataclass(frozen=True)
class Gallery(Generic[Kept]):
    """The list of saved things, with the actions on them."""

    kind: Kind[Kept]
    find_store: Callable[[], NamedStore[Kept] | None]  # None if nothing can be saved on this server
    # called when another entry is chosen in the list; its id is the value of `chosen`
    on_open: Callable[[], None]
    # called with the id and the new name
    on_rename: Callable[[str, str], None] = lambda _id, _name: None

    @property
    def chosen(self) -> str:
        """The session key of the list."""
        return self._key("saved")

    def draw(self, to_save: Kept | None, name: str) -> None:
        """Draw it; `to_save` is None if nothing can be saved, `name` is used if none is typed."""
        store, noun = self.find_store(), self.kind.one
        if store is None:
            st.caption(
                f"Saved {self.kind.many} are switched off on this server. Download the {noun} file "
                "instead."
            )
            return
        try:
            saved = {each.id: each for each in store.all()}
        except EabError as error:
            st.error(plain(as_sentence(str(error))))
            return
        self._choice(saved)
        chosen = saved.get(st.session_state[self.chosen])
        if chosen is not None:
            self._change(store, chosen)
        if to_save is not None:
            self._save(store, to_save, name)
        st.caption("Stored on the server. Everyone with access can see, rename and delete these.")

    def _key(self, part: str) -> str:
        return f"{part}_{self.kind.one}"

    def _choice(self, saved: dict[str, Saved]) -> None:
        if st.session_state.get(self.chosen) not in saved:
            st.session_state[self.chosen] = None  # another user may have deleted it
        st.selectbox(
            "Open",
            list(saved),
            index=None,
            format_func=lambda saved_id: _label(saved[saved_id]),
            key=self.chosen,
            on_change=self.on_open,
            placeholder="Choose one" if saved else "None yet",
            disabled=not saved,
        )

    # The text fields have no `max_chars`: the browser would silently drop a longer text, while the
    # store says what is wrong with it.

    def _change(self, store: NamedStore[Kept], chosen: Saved) -> None:
        key = self._key(f"rename_{chosen.id}")
        st.session_state.setdefault(key, chosen.name)
        st.text_input(f"Name of this {self.kind.one}", key=key)
        left, right = st.columns(2)
        left.button(
            "Rename",
            on_click=self._rename,
            args=(store, chosen.id, key),
            key=self._key("rename"),
            width="stretch",
        )
        right.button(
            "Delete",
            on_click=st.session_state.__setitem__,
            args=(self._key("deleting"), chosen.id),
            key=self._key("delete"),
            width="stretch",
        )
        if st.session_state.get(self._key("deleting")) == chosen.id:
            st.button(
                "Delete for good",
                on_click=self._delete,
                args=(store, chosen.id),
                key=self._key("delete_for_good"),
                type="primary",
                width="stretch",
            )

    @session.errors_as_message()
    def _rename(self, store: NamedStore[Kept], saved_id: str, key: str) -> None:
        self.on_rename(saved_id, store.rename(saved_id, st.session_state[key]))
        # makes Streamlit send the list again; the browser would keep the old name
        st.session_state[self.chosen] = saved_id

    @session.errors_as_message()
    def _delete(self, store: NamedStore[Kept], saved_id: str) -> None:
        store.delete(saved_id)

    def _save(self, store: NamedStore[Kept], content: Kept, name: str) -> None:
        suggested = shorten(" ".join(token_text.visible(name).split()), 40)
        st.text_input("Save as", key=self._key("name"), placeholder=suggested)
        st.button(
            f"Save this {self.kind.one}",
            on_click=self._keep,
            args=(store, content, suggested),
            key=self._key("save"),
            width="stretch",
        )

    @session.errors_as_message()
    def _keep(self, store: NamedStore[Kept], content: Kept, suggested: str) -> None:
        key = self._key("name")
        store.save(st.session_state[key].strip() or suggested, content)
        st.session_state[key] = ""
        st.toast("Saved")


def _label(saved: Saved) -> str:
    return f"{token_text.visible(saved.name)} · {saved.saved_at[:10]} {saved.saved_at[11:16]}"


def upload(
    label: str,
    kind: str,
    key: str,
    open_file: Callable[[bytes, str], None],
    most_mib: int | None = None,
) -> None:
    """Draw the widget; `kind` is the file extension, `open_file` gets the content and the name."""

    @session.errors_as_message()
    def opened() -> None:
        file = st.session_state[key]
        if file is not None:
            open_file(file.getvalue(), file.name)

    allowed = rules.current().upload_mib
    size = allowed if most_mib is None else min(most_mib, allowed)
    st.file_uploader(label, type=[kind], key=key, on_change=opened, max_upload_size=size)


_OPEN: Final = "open_run"  # key of the popover
_RECORDING: Final = "recording"  # key of the list of examples in it


def draw(active: bool) -> None:
    """Draw a button for the list, which is drawn only while it is open."""
    popover = st.popover("Open", icon=":material/folder_open:", on_change="rerun", key=_OPEN)
    if popover.open:
        with popover:
            _draw_list(active)


def _draw_list(active: bool) -> None:
    examples, saved, file = st.tabs(["Examples", "Saved runs", "Run file"])
    with examples:
        recordings = bundled_runs.recordings()
        st.radio(
            "Examples",
            recordings,
            index=None,
            format_func=lambda recording: recording.title,
            captions=[f"*{plain(run.teaches)}.* {plain(run.description)}" for run in recordings],
            key=_RECORDING,
            on_change=_open_recording,
            label_visibility="collapsed",
        )
    with saved:
        displayed = tab.displayed()
        started = None if active else displayed.started
        _SAVED.draw(
            displayed.details.events if started else None, started.prompt if started else ""
        )
    with file:
        upload("Open a run file", "eab", "upload", _open_file)


def open_again(past: compare.PastRun) -> None:
    """Open a run of this tab again."""
    _open(lambda: compare.open_again(past))


def clear_choices(keep: str = "") -> None:
    """Let the last choices be made again, except in the list with this key."""
    for choice in {_RECORDING, _SAVED.chosen} - {keep}:
        st.session_state[choice] = None


def fill_in_first() -> None:
    """Set the widgets of a new tab; a link's settings take precedence over its run's."""
    current, link = tab.current(), tab.link()
    asked = current.asked
    config, model = link.config or asked.config, link.model or current.model
    if link.prompt is None:
        controls.fill_from(asked.prompt, config, model, asked.messages)
    else:
        controls.fill_from(link.prompt, config, model, link.messages)


def _open_recording() -> None:
    recording = st.session_state[_RECORDING]
    if recording is not None:
        _open(lambda: tab.open_recording(recording), keep=_RECORDING)


def _open_saved() -> None:
    run_id = st.session_state[_SAVED.chosen]
    if run_id is not None:
        _open(lambda: tab.open_saved(run_id), keep=_SAVED.chosen)


def _open_file(data: bytes, name: str) -> None:
    _open(lambda: tab.open_file(data, name))


def _open(act: Callable[[], None], keep: str = "") -> None:
    """Open a run and set the widgets to it, or say why not; keep the choice in the list `keep`."""
    session.clear()
    try:
        act()
    except EabError as error:
        session.notify(str(error))
        return
    clear_choices(keep)
    if keep != _SAVED.chosen:  # a saved run can be renamed or deleted next
        st.session_state[_OPEN] = False
    current = tab.current()
    asked = current.asked
    controls.fill_from(asked.prompt, asked.config, current.model, asked.messages)


_SAVED: Final[Gallery[Sequence[Event]]] = Gallery(
    RUNS, default_store, _open_saved, tab.retitle_saved
)


_MAX_PROMPT: Final = 60  # characters
COMPARE = "../pages/compare.py"


def draw_runs(current: str, on_open: Callable[[PastRun], None]) -> None:
    """Draw the runs of this tab, if there are at least two."""
    past = compare.runs()
    if len(past) < 2:
        return
    pinned = compare.pinned()
    st.subheader("Runs in this tab")
    names = compare.differing_settings()
    with st.container(horizontal=True, key="past_runs"):
        for run in past:
            with st.container(border=True, width=190, key=f"past-{run.key}"):
                _card(run, names, run.key == current, run in pinned, on_open)
    if st.button(
        "Compare the pinned runs",
        disabled=len(pinned) < compare.MAX_PINNED,
        help="Pin two runs first." if len(pinned) < compare.MAX_PINNED else None,
        key="compare_pinned",
    ):
        compare.choose_pinned()
        st.switch_page(COMPARE)


def _card(
    run: PastRun,
    names: list[str],
    is_current: bool,
    is_pinned: bool,
    on_open: Callable[[PastRun], None],
) -> None:
    picture = base64.b64encode(run.picture.encode()).decode()  # Streamlit removes bare SVG
    st.html(f'<img src="data:image/svg+xml;base64,{picture}" alt="">')
    st.caption(plain(shorten(" ".join(visible(run.prompt).split()), _MAX_PROMPT)))
    settings = [
        f"{SETTINGS[name].label.lower()} {shown(name, getattr(run.config, name))}" for name in names
    ]
    st.caption(plain(", ".join(settings)))
    with st.container(horizontal=True):
        st.button(
            "Shown" if is_current else "Open",
            on_click=on_open,
            args=(run,),
            disabled=is_current,
            key=f"open-{run.key}",
        )
        st.button(
            "Unpin" if is_pinned else "Pin",
            on_click=compare.toggle_pin,
            args=(run.key,),
            icon=":material/keep:",
            type="primary" if is_pinned else "secondary",
            key=f"pin-{run.key}",
        )
