"""What is said of a prefix cache: its segments, and why it is off or empty."""

from app.server.batched_runs import PrefixesNow, SegmentNow
from app.widgets.batching import prefix_measures, prefix_rows, why_no_prefixes

LONG = "Once upon a time, there was a little girl named Lily who loved to play in the garden"


def test_long_texts_are_shortened_and_those_of_other_runs_are_not_shown() -> None:
    segments = [SegmentNow(0, -1, LONG, 20, 1, 2), SegmentNow(1, 0, None, 3, 0, 0)]
    first, second = prefix_rows(PrefixesNow("model", 64, 1000, 40, 10, True, segments))
    assert (len(first[0]), first[1:]) == (60, ["20", "1.2 KiB", "1", "2"])
    assert second[:2] == ["text of another run", "3"]


def test_an_empty_prefix_cache_says_why() -> None:
    for limit, asked, can_reuse, reason in (
        (0, 0, True, "Turned off (rule prefix_cache_mib)"),
        (0, 0, False, "its states are"),
        (1000, 0, True, "no run has been made yet."),
        (1000, 40, True, "fitted into it (at most 1000 B)"),
    ):
        assert reason in why_no_prefixes(PrefixesNow("model", 64, limit, asked, 0, can_reuse, ()))


def test_the_measures_are_those_of_all_segments() -> None:
    segments = [SegmentNow(0, -1, LONG, 20, 1, 2), SegmentNow(1, 0, None, 4, 1, 0)]
    now = PrefixesNow("model", 64, 2048, 40, 10, True, segments)
    assert why_no_prefixes(now) == ""
    assert prefix_measures(now) == {
        "Segments": "2",
        "Held": "1.5 KiB",
        "At most": "2.0 KiB",
        "Runs that read it": "1",
        "Prompt tokens": "40",
        "Of these found": "25%",
    }
