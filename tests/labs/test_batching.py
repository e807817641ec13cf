"""The sentences, table and figures of Batching and its Now tab, from schedules written by hand; and
how the ways group their requests.
"""

import pytest
from schedules import CONTINUOUS, STEADY, compared, passes

from eab.analysis.schedule import RunInPass, ScheduledPass
from eab.errors import ConfigError
from eab.figures.schedule import TimedPass, now_figure, rate
from eab.labs.batching import (
    MAX_NEW_TOKENS,
    MAX_PROMPT,
    MAX_REQUESTS,
    WAYS,
    ServingRequest,
    Workload,
    pass_rows,
    requests_of,
    requests_table,
    schedules,
    shown,
    timings,
    total_seconds,
    workload_of,
)
from eab.labs.charts import AXES, batching_figure
from eab.timing import Timing

ASKED = tuple(ServingRequest(f"prompt {number}", 8) for number in range(5))


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


@pytest.mark.parametrize("row", [(None, 8), ("a", None)])
def test_an_incomplete_row_of_requests_is_explained(
    row: tuple[str | None, int | None],
) -> None:
    with pytest.raises(ConfigError, match="request 2 is incomplete; give a prompt"):
        requests_of([("a", 8), row])
    assert requests_of([("a", 8)]) == (ServingRequest("a", 8),)
