"""What is said of a prefix cache: its segments, and why it is off or empty."""

from eab.analysis.prefixes import PrefixesNow, SegmentNow
from eab.figures.kv_allocation import prefix_rows, prefix_sentence

LONG = "Once upon a time, there was a little girl named Lily who loved to play in the garden"


def test_long_texts_are_shortened_and_those_of_other_runs_are_not_shown() -> None:
    segments = [SegmentNow(0, -1, LONG, 20, 1, 2), SegmentNow(1, 0, None, 3, 0, 0)]
    first, second = prefix_rows(PrefixesNow("model", 64, 1000, 40, 10, True, segments))
    assert (len(first[0]), first[1:]) == (60, ["20", "1.2 KiB", "1", "2"])
    assert second[:2] == ["text of another run", "3"]


def test_the_sentence_says_why_a_model_has_no_prefix_cache() -> None:
    for can_reuse, reason in (
        (True, "turned off (rule prefix_cache_mib)"),
        (False, "its states are"),
    ):
        words = prefix_sentence(PrefixesNow("model", 0, 0, 0, 0, can_reuse, ()))
        assert words.startswith("Every run of model computes its whole prompt:")
        assert reason in words


def test_the_sentence_about_an_empty_prefix_cache_says_whether_runs_were_made() -> None:
    for asked, reason in (
        (0, "no run has been made yet."),
        (40, "fitted into it (at most 1000 B)"),
    ):
        words = prefix_sentence(PrefixesNow("model", 64, 1000, asked, 0, True, ()))
        assert words.startswith("The prefix cache of model is empty:")
        assert reason in words
