"""Texts with technical terms underlined, each once per page, and explained by the page; those of
users and models are made safe for Streamlit's Markdown.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import streamlit as st

from eab.assets import ASSETS

FILE: Final = ASSETS / "glossary.toml"
ANCHOR: Final = "#term-"
# Parts of the Markdown that are not changed: code, formulas, links, headings.
_KEPT: Final = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|\[[^\]]*\]\([^)]*\)|^#.*?$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Term:
    """A glossary term."""

    name: str
    text: str
    also: tuple[str, ...] = ()  # other forms of the term

    @property
    def id(self) -> str:
        """The term's id in links: lowercase letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())


@lru_cache(maxsize=1)
def terms() -> tuple[Term, ...]:
    """All glossary terms."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Term(name, entry["text"], tuple(entry.get("also", ()))) for name, entry in entries.items()
    )


def linked(text: str, seen: set[str]) -> str:
    """Link the first occurrence of each term that is not in `seen`, and add its id to `seen`."""
    pieces, end = [], 0
    for kept in _KEPT.finditer(text):
        pieces += [_linked_words(text[end : kept.start()], seen), kept[0]]
        end = kept.end()
    return "".join([*pieces, _linked_words(text[end:], seen)])


def _linked_words(text: str, seen: set[str]) -> str:
    def link(match: "re.Match[str]") -> str:
        term = _by_form()[match[1].lower()]
        if term.id in seen:
            return match[0]
        seen.add(term.id)
        return f"[{match[0]}]({ANCHOR}{term.id})"

    return _pattern().sub(link, text)


@lru_cache(maxsize=1)
def _by_form() -> dict[str, Term]:
    return {form.lower(): term for term in terms() for form in (term.name, *term.also)}


@lru_cache(maxsize=1)
def _pattern() -> "re.Pattern[str]":
    forms = "|".join(re.escape(form) for form in sorted(_by_form(), key=len, reverse=True))
    return re.compile(rf"(?<![\w-])({forms})s?(?![\w-])", re.IGNORECASE)


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
