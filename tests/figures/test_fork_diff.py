"""The sentence and the table of what moved between two runs."""

from eab.analysis.fork_diff import ForkChange, Moved
from eab.figures.fork_diff import moved_rows, moved_sentence


def test_the_sentence_counts_what_appeared_and_vanished():
    moved = Moved(7, (ForkChange(" a", 0.6, 0.7),), (ForkChange("", 0.9, None),) * 2, 0.25)
    assert moved_sentence(moved, "int4") == (
        "With int4, the trees differ from token 7 on. 1 fork of B is not in A, and 2 forks of A "
        "are not in B. 25.0% of the weight lies on other texts."
    )
    assert moved_rows(moved) == [
        ("the prompt", "vanishes", "0.900 nats", "no such text"),
        ("the prompt", "vanishes", "0.900 nats", "no such text"),
        (" a", "appears", "0.600 nats", "0.700 nats"),
    ]


def test_the_same_tokens_are_said_to_be_the_same():
    words = moved_sentence(Moved(None, (), (), 0.001), "int8")
    assert "the same tokens and the same forks; 0.1% of the weight moves" in words
