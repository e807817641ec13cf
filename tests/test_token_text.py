"""Token texts lose no byte, displayed texts cannot deceive the reader, and stop strings
are found where a search of the whole text finds them.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.token_text import StopStrings, from_bytes, join, visible, visible_join


@given(text=st.text(), cuts=st.lists(st.integers(0, 400)))
def test_a_text_cut_at_any_bytes_joins_to_the_same_text(text, cuts):
    raw = text.encode()
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[start:end] for start, end in itertools.pairwise(places)]
    assert join(map(from_bytes, pieces)) == text


@given(raw=st.binary())
def test_any_bytes_survive_as_text_and_join_without_error(raw):
    assert from_bytes(raw).encode("utf-8", "surrogateescape") == raw
    assert join([from_bytes(raw)]) == raw.decode("utf-8", "replace")
    assert join([from_bytes(bytes([byte])) for byte in raw]) == raw.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("a b", "a b"),
        ("\n\r\t", "↵␍⇥"),
        (from_bytes(b"\xe2\x82"), "⟨E2⟩⟨82⟩"),
        ("\x00\x1b[31m", "⟨U+0000⟩⟨U+001B⟩[31m"),
        ("\x7f\x9b", "⟨U+007F⟩⟨U+009B⟩"),
        ("\uffff", "⟨U+FFFF⟩"),
        ("\u202eevil\u2069", "⟨U+202E⟩evil⟨U+2069⟩"),
        ("\u200e\u200f", "⟨U+200E⟩⟨U+200F⟩"),
        ("<script>&amp;", "<script>&amp;"),
        ("漢字 é 🙂", "漢字 é 🙂"),
    ],
)
def test_displayed_text_shows_control_characters_instead_of_obeying_them(token, shown):
    assert visible(token) == shown


@given(raw=st.binary())
def test_displayed_text_can_always_be_encoded_as_utf8(raw):
    shown = visible_join([from_bytes(bytes([byte])) for byte in raw])
    assert shown.encode().decode() == shown
    assert not any(
        ord(character) < 0x20 or 0x202A <= ord(character) <= 0x202E for character in shown
    )


def test_displayed_halves_of_a_character_become_the_character_when_they_meet():
    euro = "€".encode()
    assert visible_join([from_bytes(euro[:1]), from_bytes(euro[1:])]) == "€"
    assert visible_join([from_bytes(euro[:2]), "\n"]) == "⟨E2⟩⟨82⟩↵"


# ---- stop strings

PIECES = st.lists(st.binary(max_size=3) | st.sampled_from([b"\xc3", b"\xa9", b"a", b"ab", b"\n"]))
STOP = st.lists(st.text("abé\n\ufffd", min_size=1, max_size=4), min_size=1, max_size=4)


@given(PIECES, STOP)
def test_the_search_ends_at_the_first_token_that_completes_a_stop_string(
    pieces: list[bytes], stop: list[str]
) -> None:
    search, tail = StopStrings(stop), b""
    for count, piece in enumerate(pieces, start=1):
        tail, cut = search.search(tail, from_bytes(piece))
        text = b"".join(pieces[:count])
        places = [place for one in stop if (place := text.find(one.encode())) >= 0]
        assert cut == (len(text) - min(places) if places else 0)
        if cut:
            return
        assert len(tail) < max(len(one.encode()) for one in stop)


def test_an_empty_set_of_stop_strings_is_false() -> None:
    assert not StopStrings(())
    assert StopStrings(("a",))
