"""A chat of several messages: those before the prompt, and replies to the model's texts."""

from collections.abc import Callable
from typing import Final

import streamlit as st

from app.widgets.glossary import plain
from eab.events import Message
from eab.events.chat import title_of
from eab.formatting import excerpt
from eab.run import RunState

_OPENED: Final = "messages_of_the_prompt"  # those of the run that the widgets were set to
_BEFORE: Final = "messages_before_the_prompt"
_LONGEST: Final = 60  # characters of the quoted text


def keep(messages: tuple[Message, ...]) -> None:
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


def draw_before() -> bool:
    """Say what the prompt replies to, with a button to forget it; False if it is no reply."""
    before = _before()
    if not before:
        return False
    text = excerpt(" ".join(before[-1].content.split()), _LONGEST)
    st.caption(f"Your next prompt replies to “{plain(text)}”.")
    st.button("New chat", on_click=keep, args=((),), key="new_chat_button")
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
