"""The picture of a prefix cache: the text on segments, and the sentence if it is off or empty."""

from eab.analysis.prefixes import PrefixesNow, SegmentNow
from eab.figures.kv_allocation import prefix_figure, prefix_sentence

LONG = "Once upon a time, there was a little girl named Lily who loved to play in the garden"


def chain(depth: int) -> PrefixesNow:
    """A chain of segments, each with a long text."""
    segments = [SegmentNow(number, number - 1, LONG, 20, 0, 0) for number in range(depth)]
    return PrefixesNow("model", 64, 1000, 40, 10, True, segments)


def test_a_text_is_shortened_to_fit_its_segment_but_less_in_the_tooltip() -> None:
    for depth, longest in ((1, 120), (2, 60), (6, 20), (40, 8)):
        [icicle] = prefix_figure(chain(depth)).data
        assert {len(text) for text in icicle.text} == {min(longest, len(LONG))}
        assert {len(label) for label in icicle.labels} == {60}


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
