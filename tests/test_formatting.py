"""How numbers, excerpts and messages are formatted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.formatting import apart, as_sentence, ending, excerpt


@pytest.mark.parametrize(
    ("text", "length", "shown"),
    [
        ("once upon a time", 16, "once upon a time"),
        ("once upon a time", 12, "once upon …"),
        ("once upon a time", 11, "once upon …"),
        ("incomprehensibilities", 10, "incompre …"),
    ],
)
def test_an_excerpt_ends_between_two_words_if_possible(text: str, length: int, shown: str) -> None:
    assert excerpt(text, length) == shown


@pytest.mark.parametrize(
    ("text", "length", "shown"),
    [
        ("once upon a time", 8, "a time"),
        ("an incomprehensibility", 10, "ensibility"),
        (60 * "字" + " ok", 20, 17 * "字" + " ok"),
    ],
)
def test_an_ending_starts_between_two_words_if_possible(text: str, length: int, shown: str) -> None:
    assert ending(text, length) == shown


@given(st.text(max_size=60), st.integers(4, 50))
def test_an_excerpt_is_a_prefix_of_the_text_and_within_its_length(text: str, length: int) -> None:
    shown = excerpt(text, length)
    assert len(shown) <= max(length, 0)
    assert shown == text or text.startswith(shown.removesuffix(" …"))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("the prompt is empty; write one", "The prompt is empty; write one."),
        ("the name is too long. Shorten it.", "The name is too long. Shorten it."),
        ("run.eab is cut short", "run.eab is cut short."),
        ("max_paths is 0", "max_paths is 0."),
        ("Already a sentence.", "Already a sentence."),
        ("", ""),
    ],
)
def test_a_message_becomes_a_sentence_and_names_stay_unchanged(message: str, sentence: str) -> None:
    assert as_sentence(message) == sentence
    assert as_sentence(sentence) == sentence


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (0.4, 0.69, ("0.40", "0.69")),
        (0.6921, 0.6934, ("0.692", "0.693")),
        (1.0, 1.0, ("1.00", "1.00")),
    ],
)
def test_close_numbers_get_enough_digits_to_differ(
    a: float, b: float, words: tuple[str, str]
) -> None:
    assert apart(a, b) == words
