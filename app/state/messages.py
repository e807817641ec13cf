"""The problems that a page shows to the user of this tab."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import streamlit as st

from app.state.slot import Entry
from eab import token_text
from eab.errors import EabError
from eab.formatting import as_sentence

_MESSAGE: Final = "message"


def notify(message: str) -> None:
    """Show a message on the page until the next action."""
    st.session_state[_MESSAGE] = message


def clear() -> None:
    """Remove the message."""
    notify("")


@contextmanager
def errors_as_message() -> Iterator[None]:
    """Clear the message, and show an EabError raised inside as the new one; also a decorator."""
    clear()
    try:
        yield
    except EabError as error:
        notify(str(error))


def message() -> str:
    """The message on the page; empty if there is none."""
    return cast(str, st.session_state.get(_MESSAGE, ""))


def problems(*shown: Entry[Any]) -> list[str]:
    """The problems of the last action and of the page, with control characters made visible."""
    ends = (entry.state.ended for entry in shown)
    failures = [entry.live.message for entry in shown if entry.live is not None]
    failures += [ended.message for ended in ends if ended is not None]
    sentences = (message(), *(f"Run failed: {why}" for why in failures if why))
    return [as_sentence(token_text.visible(problem)) for problem in sentences if problem]
