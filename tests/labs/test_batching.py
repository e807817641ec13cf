"""The sentences, table and figures of Batching and its Now tab, from schedules written by hand; and
how the ways group their requests.
"""

import pytest

from eab.analysis.schedule import RunInPass, ScheduledPass
from eab.events import RunEnded
from eab.figures.schedule import TimedPass, now_figure, rate
from eab.labs.batching import (
    BATCHING,
    MAX_NEW_TOKENS,
    MAX_PROMPT,
    MAX_REQUESTS,
    WAYS,
    ServingRequest,
    Way,
    Workload,
    agreement_sentence,
    pass_rows,
    requests_table,
    schedules,
    shown,
    timings,
    total_seconds,
    workload_of,
)
from eab.labs.charts import AXES, batching_figure
from eab.labs.measurement import LabBegan, Report, Row
from eab.timing import NOTHING_YET, Timing

ASKED = tuple(ServingRequest(f"prompt {number}", 8) for number in range(5))
Parts = list[tuple[int, int, int]]  # run, slot, prompt tokens; 0 for a decode pass
# Two slots. Run 0 writes one token, run 1 writes three, and run 2 one.
CONTINUOUS: list[Parts] = [[(0, 0, 4), (1, 1, 4)], [(1, 1, 0), (2, 0, 4)], [(1, 1, 0)]]
STATIC: list[Parts] = [[(0, 0, 4), (1, 1, 4)], [(1, 1, 0)], [(1, 1, 0)], [(2, 0, 4)]]
SINGLE: list[Parts] = [[(0, 0, 4)], [(1, 0, 4)], [(1, 0, 0)], [(1, 0, 0)], [(2, 0, 4)]]


def passes(parts: list[Parts], seconds: float, kv_bytes: int = 1024) -> tuple[ScheduledPass, ...]:
    found = []
    for served in parts:
        new = tuple(RunInPass(run, slot, fed, 0 if fed else 1, 1, 1) for run, slot, fed in served)
        found.append(ScheduledPass(seconds, kv_bytes * len(new), new))
    return tuple(found)


def compared(
    times: dict[Way, list[float]],
    served: dict[Way, list[Parts]] | None = None,
    differing: int = 0,
    slots: int = 2,
) -> Report:
    """A comparison with these seconds per pass, one number per repeat."""
    ways = served or {"continuous": CONTINUOUS, "static batches": STATIC, "one by one": SINGLE}
    given = tuple(ServingRequest(f"prompt <{number}>", 3)._asdict() for number in range(3))
    found = Report().collect(
        [LabBegan("model", "float32", "machine", "batching", {"slots": slots}, given)]
    )
    for way, repeated in times.items():
        for repeat, seconds in enumerate(repeated):
            served_now = passes(ways[way], seconds)
            found.collect(pass_rows(way, repeat, served_now, served_now if repeat else None))
            found.apply(Row("servings", {"way": way, "repeat": repeat, "differing": differing}))
    found.apply(RunEnded(0, "finished"))
    return found


STEADY = compared(
    {
        "continuous": [1.0, 1.1, 0.9, 1.1, 0.9, 1.0, 1.0],
        "static batches": [1.0, 1.1, 0.95, 1.05, 0.95, 1.0, 1.0],
        "one by one": [0.5, 0.53, 0.5, 0.5, 0.5, 0.5, 0.5],
    }
)


def test_the_headline_says_how_long_each_way_took() -> None:
    words = BATCHING.answer(STEADY)
    assert words.startswith(
        "No: the last request got its first token after 2.00 s with continuous batching, and "
        "after 4.00 s with static batches. 3 requests in 2 slots: "
    )
    for part in ("3 passes and 3.00 s", "4 and 4.00 s (1.33×", "5 and 2.50 s (0.833×"):
        assert part in words
    assert "medians of 7 repeats, measured" in words


def test_medians_within_the_spread_count_as_no_difference() -> None:
    noisy = compared({"continuous": [1.0, 2.0] * 4, "static batches": [1.0, 1.2] * 4})
    assert "4.40 s (no difference measured)" in BATCHING.answer(noisy)
    ratios = {name: cells for name, *cells in BATCHING.table(noisy)}
    assert ratios["seconds for all, times as long"] == ["–", "no difference measured"]


def test_few_repeats_are_shown_but_not_compared() -> None:
    few = compared({"continuous": [1.0] * 6, "static batches": [2.0] * 6})
    assert BATCHING.answer(few).endswith(
        "3 passes and 3.00 s, static batches 4 and 8.00 s; medians of 6 repeats, measured, too few "
        "repeats to compare."
    )
    assert "seconds for all, times as long" not in [name for name, *_ in BATCHING.table(few)]


def test_ways_that_were_not_measured_are_not_mentioned() -> None:
    empty = Report()
    assert BATCHING.answer(empty) == agreement_sentence(empty) == NOTHING_YET
    only = compared({"continuous": [1.0]}, differing=1)
    assert "static" not in BATCHING.answer(only)
    assert agreement_sentence(only).startswith("2 of 3 texts are the same")
    assert agreement_sentence(STEADY).startswith("All ways wrote the same texts")


def test_the_repeat_of_median_length_is_shown_for_each_way() -> None:
    found = compared({"continuous": [1.0, 0.3, 0.7], "static batches": [0.25, 1.0]})
    assert {way: one.seconds for way, one in shown(found).items()} == {
        "continuous": pytest.approx(2.1),
        "static batches": 4.0,
    }
    assert timings(found, total_seconds)["static batches"] == Timing((1.0, 4.0))
    assert schedules(found) is schedules(found), "the rows are grouped once"
    assert shown(found)["continuous"].passes == passes(CONTINUOUS, 0.7)
    assert workload_of(found).requests[2] == ServingRequest("prompt <2>", 3)


def test_passes_are_read_back_without_requests_and_if_a_repeat_served_others() -> None:
    found = compared({"continuous": [1.0, 2.0]}, {"continuous": [[], [(0, 0, 4)]]})
    first, again = schedules(found)["continuous"]
    assert first.passes == passes([[], [(0, 0, 4)]], 1.0)
    assert [one.served for one in again.passes] == [one.served for one in first.passes]
    assert len(found.rows("served")) == 1, "the repeat served the same"
    other = passes([[(1, 0, 4)]], 3.0)
    found.collect(pass_rows("continuous", 2, other, first.passes))
    assert schedules(found)["continuous"][2].passes == other


def test_the_table_has_medians_with_quartiles() -> None:
    rows = {name: cells for name, *cells in BATCHING.table(STEADY)}
    assert rows["seconds for all"] == ["3.00 (2.85–3.15)", "4.00 (3.90–4.10)", "2.50"]
    [fullness] = [cells for name, cells in rows.items() if name.startswith("tokens per forward")]
    assert [cell.split(" ")[0] for cell in fullness] == ["4.7", "3.5", "2.8"]
    assert rows["forward passes"] == ["3", "4", "5"]
    assert rows["slot-steps idle"] == ["17%", "38%", "50%"]
    assert rows["time to first token, p50 (s)"][0] == "1.00 (0.95–1.05)"
    assert rows["time per output token, p50 (ms)"][0] == "1,000 (950–1,050)"


def test_the_download_has_a_row_per_request() -> None:
    rows = requests_table(STEADY)
    assert rows.groupby("way")["new_tokens"].sum().to_dict() == dict.fromkeys(
        ("continuous", "static batches", "one by one"), 5
    )
    continuous = rows[rows["way"] == "continuous"]
    assert continuous["first_token_s"].tolist() == [1.0, 1.0, 2.0]
    assert continuous["ended_s"].tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize("across", list(AXES))
def test_the_figure_draws_all_ways_on_one_axis(across: str) -> None:
    figure = batching_figure(STEADY, across)  # type: ignore[arg-type]
    assert figure.layout.xaxis.title.text == AXES[across]  # type: ignore[index]
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.base]
    ends = [start + length for bar in bars for start, length in zip(bar.base, bar.x, strict=True)]
    assert max(ends) == pytest.approx(5 if across == "passes" else 4.0)
    assert {trace.xaxis for trace in figure.data} == {None}, "one x axis, so one cursor"
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert len(named) == len(set(named)) == 7
    assert "idle while a request waits" in named
    words = [text for bar in bars for text in bar.customdata]
    assert "request 1: “prompt &lt;0&gt;”<br>slot 1, prefill: 4 tokens in 1 forward pass" in words


def timed(*ends: float) -> list[TimedPass]:
    """Half-second passes that ended at these times, with run 3 in slot 0 and run 4 in slot 1."""
    record = ScheduledPass(0.5, 2048, (RunInPass(3, 0, 0, 2, 1, 2), RunInPass(4, 1, 0, 1, 1, 1)))
    return [TimedPass(end, record) for end in ends]


def test_now_counts_the_new_tokens_of_the_last_seconds() -> None:
    found = timed(-8.0, -1.5, -1.0)
    assert rate(found) == pytest.approx((3 + 3) / 5.0)


def test_now_draws_each_pass_at_its_time_and_labels_runs_by_number() -> None:
    figure = now_figure(timed(-3.0, -1.0, -0.5), busy=True)
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.base]
    spans = sorted(
        (slot, round(start, 6), round(length, 6))
        for bar in bars
        for slot, start, length in zip(bar.y, bar.base, bar.x, strict=True)
    )
    assert spans == [(0, -3.5, 0.5), (0, -1.5, 1.0), (1, -3.5, 0.5), (1, -1.5, 1.0)]
    labels = {note.text for note in figure.layout.annotations}
    assert labels == {"run 3", "run 4"}
    assert figure.layout.xaxis.title.text == "seconds from now"


def test_now_has_a_chart_before_anything_was_served_and_drops_old_passes() -> None:
    for found in ([], timed(-60.0)):
        figure = now_figure(found, busy=False)
        assert not figure.data
        assert figure.layout.height == now_figure(timed(-1.0), busy=True).layout.height


def test_the_largest_workload_is_allowed() -> None:
    largest = Workload((ServingRequest("x" * MAX_PROMPT, MAX_NEW_TOKENS),) * MAX_REQUESTS, 8, 9, 8)
    assert largest.config(largest.requests[0]).max_paths == 8


def test_the_ways_differ_in_how_they_group_requests() -> None:
    workload = Workload(ASKED, slots=2)
    assert {way: [[*group] for group in workload.groups(way)] for way in WAYS} == {
        "continuous": [[0, 1, 2, 3, 4]],
        "static batches": [[0, 1], [2, 3], [4]],
        "one by one": [[0], [1], [2], [3], [4]],
    }
