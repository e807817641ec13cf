"""The widget that opens a visitor's file."""

from collections.abc import Callable

import streamlit as st

from app.server import rules
from app.state import messages


def upload(
    label: str,
    kind: str,
    key: str,
    open_file: Callable[[bytes, str], None],
    most_mib: int | None = None,
) -> None:
    """Draw the widget; `kind` is the file extension, `open_file` gets the content and the name."""

    @messages.errors_as_message()
    def opened() -> None:
        file = st.session_state[key]
        if file is not None:
            open_file(file.getvalue(), file.name)

    allowed = rules.current().upload_mib
    size = allowed if most_mib is None else min(most_mib, allowed)
    st.file_uploader(label, type=[kind], key=key, on_change=opened, max_upload_size=size)
