"""Stop strings are found where a search of the whole text finds them."""

from hypothesis import given
from hypothesis import strategies as st

from eab import token_text
from eab.run.stop_strings import StopStrings

PIECES = st.lists(st.binary(max_size=3) | st.sampled_from([b"\xc3", b"\xa9", b"a", b"ab", b"\n"]))
STOP = st.lists(st.text("abé\n\ufffd", min_size=1, max_size=4), min_size=1, max_size=4)


@given(PIECES, STOP)
def test_the_search_ends_at_the_first_token_that_completes_a_stop_string(
    pieces: list[bytes], stop: list[str]
) -> None:
    search, tail = StopStrings(stop), b""
    for count, piece in enumerate(pieces, start=1):
        tail, cut = search.search(tail, token_text.from_bytes(piece))
        text = b"".join(pieces[:count])
        places = [place for one in stop if (place := text.find(one.encode())) >= 0]
        assert cut == (len(text) - min(places) if places else 0)
        if cut:
            return
        assert len(tail) < max(len(one.encode()) for one in stop)


def test_an_empty_set_of_stop_strings_is_false() -> None:
    assert not StopStrings(())
    assert StopStrings(("a",))
