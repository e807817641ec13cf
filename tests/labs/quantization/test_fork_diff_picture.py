"""The sentence and the table of what moved between two runs."""

from eab.labs.quantization.fork_diff import ForkChange, Moved
from eab.labs.quantization.fork_diff_picture import moved_rows, moved_sentence


def test_the_sentence_counts_what_appeared_and_vanished():
    moved = Moved(7, (ForkChange(" a", 0.6, 0.7),), (ForkChange("", 0.9, None),) * 2, 0.25)
    words = moved_sentence(moved, "int4")
    for part in ("With int4, ", "from token 7 on", "2 forks of A", "1 fork of B", "25.0%"):
        assert part in words
    assert "after “ a”: the entropy is 0.6000 nats in A and 0.7000 in B" in words
    vanishes = ("the prompt", "vanishes", "0.9000 nats", "no such text")
    assert moved_rows(moved) == [vanishes] * 2 + [(" a", "appears", "0.6000 nats", "0.7000 nats")]


def test_the_same_tokens_are_said_to_be_the_same():
    words = moved_sentence(Moved(None, (), (), 0.001), "int8")
    assert "the same tokens and the same forks; 0.1% of the weight moves" in words
