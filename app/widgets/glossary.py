"""Texts with technical terms underlined, each once per page, and explained by the page; those of
users and models are made safe for Streamlit's Markdown.
"""

import re
from pathlib import Path
from typing import Final

import streamlit as st

from eab.lessons.glossary import linked, terms

_STATIC: Final = Path(__file__).parent / "static"
_SEEN: Final = "glossary_seen"  # ids of the terms on the page

_explain: Final = st.components.v2.component(
    "eab_glossary",
    css=(_STATIC / "glossary.css").read_text(encoding="utf-8"),
    js=(_STATIC / "glossary.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def begin_page() -> None:
    """Forget which terms are on the page; must be the first call of every drawing."""
    st.session_state[_SEEN] = set()


def markdown(text: str) -> None:
    """Draw Markdown, with each term that is new on this page underlined."""
    st.markdown(linked(text, st.session_state.setdefault(_SEEN, set())))


def explain() -> None:
    """Add the explanations of the terms to the page; must be the last call of every drawing."""
    seen: set[str] = st.session_state.setdefault(_SEEN, set())
    if seen:
        shown = [[term.id, term.name, term.text] for term in terms() if term.id in seen]
        _explain(key="eab_glossary", data=shown)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&])")


def plain(text: str) -> str:
    """The text with every character escaped that has a meaning in Markdown, LaTeX or HTML."""
    return _MARKDOWN.sub(r"\\\1", text)
