"""The glossary turns the first use of a term on a page into a link and changes nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.widgets.elements import linked, terms
from eab.lessons.lesson_files import lessons

LINK = re.compile(r"\[([^\]]*)\]\(#term-[a-z0-9-]+\)")


def test_ids_differ_and_every_term_is_explained_in_sentences() -> None:
    assert len({term.id for term in terms()}) == len(terms())
    for term in terms():
        assert re.fullmatch(r"[a-z0-9-]+", term.id)
        assert term.text.endswith(".")
        assert term.text[0].isupper()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Entropy, and entropy.", "[Entropy](#term-entropy), and entropy."),
        ("Two **forks**.", "Two **[forks](#term-fork)**."),
        ("A semantic entropy.", "A [semantic entropy](#term-semantic-entropy)."),
        ("`entropy` and $entropy$", "`entropy` and $entropy$"),
        ("[entropy](https://example.org)", "[entropy](https://example.org)"),
        ("pathological", "pathological"),
        ("K and V: a KV cache", "K and V: a [KV cache](#term-kv-cache)"),
    ],
)
def test_the_first_occurrence_is_linked(text: str, shown: str) -> None:
    assert linked(text, set()) == shown


def test_a_term_that_is_already_linked_on_the_page_is_left_alone() -> None:
    seen: set[str] = set()
    assert linked("entropy", seen) != "entropy"
    assert seen == {"entropy"}
    assert linked("entropy", seen) == "entropy"


@given(st.text(alphabet="aekny fork`$[]()#\n", max_size=60))
def test_without_its_links_the_text_is_unchanged(text: str) -> None:
    assert LINK.sub(r"\1", linked(text, set())) == text


def test_the_lessons_use_terms_of_the_glossary() -> None:
    seen: set[str] = set()
    for lesson in lessons():
        linked(" ".join([lesson.introduction, *(one.text for one in lesson.sections)]), seen)
    assert len(seen) > 20
