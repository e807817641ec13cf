"""The runs or sweeps saved on the server (save, open, rename, delete), and the widget that opens a
visitor's file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import streamlit as st

from app.server import rules
from app.server.store import Kept, Kind, NamedStore, Saved
from app.state import status
from app.widgets.glossary import plain
from eab import token_text
from eab.board.still import shorten
from eab.errors import EabError
from eab.formatting import as_sentence


@dataclass(frozen=True)
class Gallery(Generic[Kept]):
    """The list of saved things, with the actions on them."""

    kind: Kind[Kept]
    find_store: Callable[[], NamedStore[Kept] | None]  # None if nothing can be saved on this server
    # called when another entry is chosen in the list; its id is the value of `chosen`
    on_open: Callable[[], None]
    on_rename: Callable[[str, str], None]  # called with the id and the new name

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

    @status.errors_as_message()
    def _rename(self, store: NamedStore[Kept], saved_id: str, key: str) -> None:
        self.on_rename(saved_id, store.rename(saved_id, st.session_state[key]))
        # makes Streamlit send the list again; the browser would keep the old name
        st.session_state[self.chosen] = saved_id

    @status.errors_as_message()
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

    @status.errors_as_message()
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

    @status.errors_as_message()
    def opened() -> None:
        file = st.session_state[key]
        if file is not None:
            open_file(file.getvalue(), file.name)

    allowed = rules.current().upload_mib
    size = allowed if most_mib is None else min(most_mib, allowed)
    st.file_uploader(label, type=[kind], key=key, on_change=opened, max_upload_size=size)
