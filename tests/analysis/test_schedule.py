"""Schedules written by hand, records of passes from events, and properties of all schedules."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import events_of

from eab.analysis.schedule import (
    Idle,
    RunInPass,
    Schedule,
    ScheduledPass,
    ScheduleRecorder,
    Segment,
)
from eab.run.events import KvMeasured, RunEnded, StepTimed


def prefill(run: int, slot: int, tokens: int, steps: int = 1) -> RunInPass:
    return RunInPass(run, slot, tokens, 0, steps, steps)


def decode(run: int, slot: int) -> RunInPass:
    return RunInPass(run, slot, 0, 1, 1, 1)


def of_seconds(slots: int, *passes: tuple[RunInPass, ...]) -> Schedule:
    """A schedule whose passes take one second each."""
    return Schedule(slots, tuple(ScheduledPass(1.0, 0, served) for served in passes))


# Three runs in two slots. Run 0 writes two tokens and run 1 four. Run 2 waits for the slot of
# run 0, and its prompt takes two passes.
PASSES = (
    ScheduledPass(1.0, 100, (prefill(0, 0, 5), prefill(1, 1, 3))),
    ScheduledPass(0.5, 110, (decode(0, 0), decode(1, 1))),
    ScheduledPass(2.0, 90, (decode(1, 1), prefill(2, 0, 16, steps=0))),
    ScheduledPass(1.5, 95, (decode(1, 1), prefill(2, 0, 4))),
    ScheduledPass(0.5, 50, (decode(2, 0),)),
)
SCHEDULE = Schedule(2, PASSES)


def test_the_times_of_a_schedule_worked_out_by_hand() -> None:
    assert SCHEDULE.ends == [1.0, 1.5, 3.5, 5.0, 5.5]
    assert SCHEDULE.seconds == 5.5
    assert SCHEDULE.start(2) == 1.5
    assert [one.tokens for one in PASSES] == [8, 2, 17, 5, 1]
    assert SCHEDULE.peak_kv_bytes == 110
    assert SCHEDULE.new_tokens == 2 + 4 + 2
    assert SCHEDULE.first_token_passes() == {0: 0, 1: 0, 2: 3}
    assert SCHEDULE.first_token_seconds() == {0: 1.0, 1: 1.0, 2: 5.0}, "the wait counts"
    assert SCHEDULE.output_token_seconds() == pytest.approx({0: 0.5, 1: (5.0 - 1.0) / 3, 2: 0.5})
    empty = Schedule(4, ())
    assert (empty.seconds, empty.idle_share, empty.awaited_idle_share) == (0, 0, 0)
    assert empty.segments() == empty.idle() == []


def test_segments_join_passes_of_the_same_work() -> None:
    assert SCHEDULE.segments() == [
        Segment(0, 0, "prefill", 0, 0, 5),
        Segment(0, 0, "decode", 1, 1, 1),
        Segment(1, 1, "prefill", 0, 0, 3),
        Segment(1, 1, "decode", 1, 3, 3),
        Segment(2, 0, "prefill", 2, 3, 20),
        Segment(2, 0, "decode", 4, 4, 1),
    ]


def test_idle_slots_say_whether_a_run_waited() -> None:
    both, one = (prefill(0, 0, 5), prefill(1, 1, 5)), (decode(1, 1),)
    static = of_seconds(2, both, one, one, (prefill(2, 0, 5),))
    assert static.idle() == [Idle(0, 1, 2, True), Idle(1, 3, 3, False)]
    assert static.idle_share == pytest.approx(3 / 8)
    assert static.awaited_idle_share == pytest.approx(2 / 8)
    assert SCHEDULE.idle() == [Idle(1, 4, 4, False)]
    assert SCHEDULE.awaited_idle_share == 0
    misses_one = of_seconds(1, (prefill(0, 0, 5),), (), (decode(0, 0),))
    assert [one.first for one in misses_one.segments()] == [0, 2]
    assert misses_one.idle() == [Idle(0, 1, 1, False)]


def test_the_record_of_a_pass_agrees_with_its_events(embedded) -> None:
    settings = {"max_paths": 1, "entropy_threshold": 20.0, "max_new_tokens": 3}
    events = events_of(embedded, "Once upon a time", **settings)
    ends = [number for number, event in enumerate(events, 1) if isinstance(event, StepTimed)]
    recorder, records, begun = ScheduleRecorder(), [], 0
    for end in [*ends[:-1], len(events)]:
        records.append(recorder.record(1.0, {7: events[begun:end]}))
        begun = end
    prompt = next(event.tokens for event in events if isinstance(event, StepTimed))
    assert [one.served for one in records] == [
        (RunInPass(7, 0, prompt, 0, 1, 1),),
        (RunInPass(7, 0, 0, 1, 1, 1),),
        (RunInPass(7, 0, 0, 1, 1, 1),),
    ]
    measured = [event.usage.bytes_held for event in events if isinstance(event, KvMeasured)]
    assert [one.kv_bytes for one in records] == measured
    assert all(held % embedded.card.row_bytes == 0 for held in measured)
    assert recorder.record(1.0, {}).kv_bytes == 0, "a run that ended holds nothing"


def test_a_slot_is_free_for_the_next_run_once_its_run_ended() -> None:
    step, recorder = StepTimed(1, 1, 0.1, 0.1), ScheduleRecorder()
    ended = RunEnded(1, "finished")
    first = recorder.record(1.0, {1: [step], 2: [step]})
    second = recorder.record(1.0, {1: [step, ended], 2: [step]})
    third = recorder.record(1.0, {2: [step], 3: [step]})
    slots = [{one.run: one.slot for one in record.served} for record in (first, second, third)]
    assert slots == [{1: 0, 2: 1}, {1: 0, 2: 1}, {2: 1, 3: 0}]
    recorder.forget(2)
    assert recorder.record(1.0, {4: [step], 3: []}).served[0].slot == 1


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Runs of random lengths that start in order, each in the first free slot."""
    slots = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    left: dict[int, int] = {}
    waiting, passes, places = [*range(len(lengths))], [], dict[int, int]()
    while waiting or left:
        while waiting and len(left) < slots:
            run = waiting.pop(0)
            places[run] = min(set(range(slots)) - {places[other] for other in left})
            left[run] = lengths[run]
        served = tuple(
            prefill(run, places[run], 3) if left[run] == lengths[run] else decode(run, places[run])
            for run in left
        )
        passes.append(ScheduledPass(draw(st.floats(0.001, 1)), 0, served))
        left = {run: steps - 1 for run, steps in left.items() if steps > 1}
    return Schedule(slots, tuple(passes))


@given(schedules())
def test_every_slot_step_is_busy_or_idle(schedule: Schedule) -> None:
    busy, idle = (
        [(one.slot, number) for one in each for number in range(one.first, one.last + 1)]
        for each in (schedule.segments(), schedule.idle())
    )
    every = list(itertools.product(range(schedule.slots), range(len(schedule.passes))))
    assert sorted(busy + idle) == every
    assert schedule.idle_share == pytest.approx(len(idle) / len(every))
    assert schedule.awaited_idle_share == 0, "a free slot is taken at once"
    first = schedule.first_token_seconds()
    for run, parts in schedule.by_run.items():
        assert schedule.start(parts[0][0]) < first[run] <= schedule.ends[parts[-1][0]]
    assert schedule.new_tokens == sum(len(parts) for parts in schedule.by_run.values())
