"""Texts are read again side by side, each common prefix once."""

from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from eab.caches.base import ForwardBatch
from eab.caches.state_recovery import StateRecovery

TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=6)


@given(TEXTS.filter(any), st.integers(1, 12), st.booleans())
def test_every_common_prefix_is_read_once(texts, limit, whole):
    read, passes = {}, []

    def prepare(groups):
        for first, *others in groups:
            start = read.get(first, ())
            new = texts[first][len(start) : recovery.end]
            assert new
            passes.append(len(new))
            read.update(dict.fromkeys((first, *others), (*start, *new)))
        return ForwardBatch(None, *[tensor([0])] * 3, ())

    recovery = StateRecovery(dict(enumerate(texts)), prepare, whole)
    expected = recovery.rows_left
    while recovery.rows_left:
        recovery.prepare(limit)
    assert {path: [*text] for path, text in read.items()} == {
        path: text for path, text in enumerate(texts) if text
    }
    beginnings = {tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)}
    assert sum(passes) == expected == len(beginnings)
