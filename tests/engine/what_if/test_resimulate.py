"""A resimulated run equals the engine's, event by event, with rows and bytes; where it may differ,
it says so.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from command_line import output_of
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import bundled, events_of
from msgspec import structs
from policies import BY_STEP

from eab.config import BranchingConfig
from eab.engine.loop import event_stream, stop_when
from eab.engine.request import Request
from eab.engine.what_if import Unknown
from eab.engine.what_if.resimulate import resimulate
from eab.errors import ConfigError, EabError, RecordError
from eab.figures.run_comparison import tree_change_sentence
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold, record
from eab.run.events import (
    Event,
    Forked,
    Labelled,
    LimitActed,
    Predicted,
    Probed,
    Pruned,
    RunEnded,
    RunStarted,
    StepTimed,
)

MODEL = TableModel(random_table(5, 6))
CHAIN, SEED = st.integers(0, 10**6), st.integers(0, 2**63 - 1)
R = st.integers(1, 12) | st.just("auto")
STOPS = st.sets(st.integers(0, 5), max_size=2)


def timeless(events: Iterable[Event]) -> list[Event]:
    """Blank the fields that always differ: times, and the mark of a resimulated run."""
    kept = []
    for event in events:
        if isinstance(event, StepTimed):
            event = structs.replace(event, seconds=0.0, forward_seconds=0.0)
        kept.append(structs.replace(event, what_if="") if isinstance(event, RunStarted) else event)
    return kept


def assert_alike(ours: Iterable[Event], theirs: Iterable[Event]) -> None:
    """Assert that events are equal up to the last digits of weights, because a resimulated weight
    is computed from ratios of recorded weights.
    """
    ours, theirs = timeless(ours), timeless(theirs)
    assert [type(event) for event in ours] == [type(event) for event in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        for name in mine.__struct_fields__:
            assert near(getattr(mine, name), getattr(other, name)), (mine, other)


def near(mine: object, other: object) -> bool:
    if isinstance(mine, float):
        return math.isclose(mine, other, rel_tol=1e-9)  # type: ignore[arg-type]
    if isinstance(mine, tuple):
        return len(mine) == len(other) and all(map(near, mine, other))  # type: ignore[arg-type]
    return mine == other


@settings(max_examples=160)
@given(
    chain=CHAIN,
    size=st.integers(2, 6),
    thresholds=st.tuples(st.floats(0.0, 1.4), st.floats(0.0, 1.8)),
    r=st.tuples(R, R),
    stops=STOPS,
    settings=st.fixed_dictionaries(
        {
            "branch_factor": st.integers(2, 4),
            "max_new_tokens": st.integers(1, 8),
            "seed": SEED,
            "max_paths": st.just(256) | st.integers(1, 8),
            "min_fork_weight": st.sampled_from([0.0, 0.0, 0.05, 0.2]),
            "attention": st.sampled_from(["sliced", "padded"]),
        }
    ),
)
def test_a_what_if_called_exact_equals_the_run_of_the_engine(
    chain, size, thresholds, r, stops, settings
):
    """It is called exact at a higher threshold and another r, unless a limit acts."""
    model, before, after = TableModel(random_table(chain, size), sorted(stops)), *thresholds
    recorded = events_of(model, "0 1", entropy_threshold=before, r=r[0], **settings)
    what_if = resimulate(recorded, after, r[1])
    limited = any(isinstance(event, LimitActed | Pruned) for event in recorded)
    note(f"limited {limited}, {'not exact' if what_if.unknowns else 'exact'}")
    if not limited and after >= before and not settings["min_fork_weight"]:
        assert not what_if.unknowns
    run = fold(what_if.events)
    assert (run.started.what_if == "exact") == (not what_if.unknowns)
    assert math.isclose(sum(leaf.weight for leaf in run.leaves()), 1.0, rel_tol=1e-9)
    assert record.loads(record.dumps(what_if.events)) == list(what_if.events)
    if not what_if.unknowns:
        made = events_of(model, "0 1", entropy_threshold=after, r=r[1], **settings)
        assert_alike(what_if.events, made)


@settings(max_examples=60)
@given(
    chain=CHAIN,
    r=st.tuples(R, R),
    cache=st.sampled_from(["tree", "deep-copy"]),
    settings=st.fixed_dictionaries(
        {
            "entropy_threshold": st.floats(0.0, 1.4),
            "max_paths": st.integers(1, 9),
            "policy": st.sampled_from(BY_STEP),
            "max_new_tokens": st.integers(1, 10),
            "seed": SEED,
        }
    ),
)
def test_another_r_is_exact_under_every_limit_and_policy(chain, r, cache, settings):
    model = TableModel(random_table(chain, 6), stop_ids=[5])
    what_if = resimulate(events_of(model, "0 1", cache=cache, r=r[0], **settings), r=r[1])
    assert not what_if.unknowns
    assert_alike(what_if.events, events_of(model, "0 1", r=r[1], **settings))


@pytest.mark.parametrize("name", [one.file[:-4] for one in bundled_runs.recordings()])
def test_a_bundled_run_resimulated_without_changes_stays_the_same(name: str) -> None:
    events = [event for event in bundled(name) if not isinstance(event, Labelled)]
    assert timeless(resimulate(events).events) == timeless(events)


def test_a_resimulated_stopped_run_equals_one_that_the_engine_stopped_at_the_same_step() -> None:
    def stopped(threshold: float) -> list[Event]:
        config = BranchingConfig(
            entropy_threshold=threshold, max_new_tokens=9, max_paths=256, branch_factor=2
        )
        seen: list[Event] = []
        events = event_stream(MODEL, Request("0", config))
        for event in stop_when(
            events, lambda: sum(isinstance(event, StepTimed) for event in seen) == 4
        ):
            seen.append(event)
        return seen

    what_if = resimulate(stopped(0.4), 1.2)
    assert not what_if.unknowns
    assert what_if.events[-1] == RunEnded(4, "stopped")
    assert_alike(what_if.events, stopped(1.2))


def test_a_lower_threshold_marks_new_forks_and_keeps_the_tree() -> None:
    recorded = events_of(MODEL, "0 1", entropy_threshold=1.2, max_new_tokens=6, max_paths=256)
    what_if = resimulate(recorded, 0.8)
    wanted = {
        (event.step, seen.path)
        for event in recorded
        if isinstance(event, Predicted)
        for seen in event.predictions
        if 0.8 <= seen.entropy < 1.2
    }
    assert wanted
    assert {(unknown.step, unknown.path) for unknown in what_if.unknowns} == wanted
    assert {unknown.why for unknown in what_if.unknowns} == {"fork"}
    assert fold(what_if.events).started.what_if == "approximate"
    texts, expected = (fold(events).samples for events in (what_if.events, recorded))
    assert {one.token_ids for one in texts} == {one.token_ids for one in expected}


def test_a_path_that_becomes_heavy_enough_to_fork_is_marked() -> None:
    """Two equally likely tokens at first (0.69 nats), then four (1.39 nats); each child is too
    light to fork.
    """
    first, later = np.tile([0.5, 0.5, 0.0, 0.0], (4, 1)), np.full((4, 4), 0.25)
    model = TableModel(np.stack([first, later, later]))
    settings = {"max_new_tokens": 3, "branch_factor": 2, "min_fork_weight": 0.6}
    what_if = resimulate(events_of(model, "0 1", entropy_threshold=0.5, **settings), 1.0)
    assert what_if.unknowns == (Unknown(1, 0, "fork"), Unknown(2, 0, "fork"))
    made = events_of(model, "0 1", entropy_threshold=1.0, **settings)
    forks = [(event.step, event.path) for event in made if isinstance(event, Forked)]
    assert forks[0] == (1, 0), "where the engine forks, indeed"


def test_unknowns_that_the_path_limit_causes_are_marked() -> None:
    what_if = resimulate(bundled("long"), 1.56)
    assert {unknown.why for unknown in what_if.unknowns} >= {"limit", "heir", "dropped"}
    run = fold(what_if.events)
    lost = [unknown.path for unknown in what_if.unknowns if unknown.why == "dropped"]
    assert {run.paths[path].status for path in lost} == {"live"}, "as the trace leaves it"
    again = fold(resimulate(what_if.events, 20.0).events)
    assert again.started.what_if == "approximate", "of an approximate what-if"


def test_a_new_threshold_is_in_nats_and_drops_the_probe() -> None:
    settings = {"entropy_threshold": 2.0, "threshold_unit": "rank", "max_new_tokens": 5}
    recorded = events_of(MODEL, "0 1", **settings)
    assert isinstance(recorded[0], Probed)
    assert [event for event in resimulate(recorded).events if isinstance(event, Probed)]
    started = resimulate(recorded, 1.3).events[0]
    assert isinstance(started, RunStarted)
    assert (started.config.entropy_threshold, started.config.threshold_unit) == (1.3, "nats")


def test_a_run_that_outgrew_its_memory_fails_again_or_has_an_unknown_end() -> None:
    settings = {"max_new_tokens": 4000, "max_paths": 64, "kv_limit_mib": 1, "r": 4000}
    model = TableModel(random_table(3, 6))
    recorded = events_of(model, "0 1", entropy_threshold=0.3, **settings)
    assert isinstance(recorded[-1], RunEnded)
    assert recorded[-1].reason == "failed"
    assert resimulate(recorded).events[-1] == recorded[-1]
    smaller = resimulate(recorded, r=8)  # the run would have gone on
    assert [unknown.why for unknown in smaller.unknowns] == ["ended"]


@pytest.mark.parametrize(
    ("name", "threshold", "r", "words"),
    [
        ("original", 2.0, None, "policy original"),
        ("bridge", math.nan, None, "must be a number"),
        ("original", None, 0, "r is 0"),
    ],
)
def test_an_impossible_threshold_or_r_is_refused(name, threshold, r, words) -> None:
    with pytest.raises(ConfigError, match=words):
        resimulate(bundled(name), threshold, r)


EVENTS = bundled("bridge")
STARTED = fold(EVENTS).started


def started_with(**changed: object) -> list[Event]:
    """The events with these fields of RunStarted changed."""
    return [structs.replace(STARTED, **changed) if one == STARTED else one for one in EVENTS]


BROKEN: dict[str, list[Event]] = {
    "nothing": [],
    "not started": [Probed(0, 1.0)],
    "no predictions": [event for event in EVENTS if not isinstance(event, Predicted)],
    "no forks": [event for event in EVENTS if not isinstance(event, Forked)],
    "wrong sizes": started_with(model=structs.replace(STARTED.model, layers=10**9)),
    "wrong rows": started_with(model=structs.replace(STARTED.model, row_bytes=1)),
    "unknown dtype": started_with(model=structs.replace(STARTED.model, dtype="<b>")),
    "fewer prompt texts": started_with(prompt_texts=()),
}


@pytest.mark.parametrize("events", BROKEN.values(), ids=BROKEN)
def test_contradictory_events_are_refused(events: list[Event]) -> None:
    with pytest.raises(RecordError):
        resimulate(events, 0.9)


@settings(max_examples=100)
@given(gone=st.lists(st.integers(1, 160), max_size=3), threshold=st.floats(0.0, 3.0))
def test_a_run_with_missing_events_is_refused_or_resimulated_but_never_crashes(gone, threshold):
    left = [event for index, event in enumerate(bundled("sum")) if index not in gone]
    with suppress(EabError):
        assert fold(resimulate(left, threshold).events).leaves()


def test_the_command_prunes_a_run_file_and_says_whether_it_is_exact(tmp_path: Path) -> None:
    pruned, source = tmp_path / "pruned.eab", str(bundled_runs.FOLDER / "market.eab")
    arguments = ["what-if", source, "--threshold", "1.0", "--r", "4", "--record", str(pruned)]
    words = " ".join(output_of(*arguments).split())
    assert "2 forks, 5 paths; recorded at 0.50 nats: 3 forks, 7 paths" in words
    assert "Exact: " in words
    assert "(computed). As recorded: r = 4 allocates 4 times" in words
    assert list(resimulate(record.load(source), 1.0, 4).events) == record.load(pruned)


def test_a_threshold_between_the_same_entropies_says_that_no_fork_changes() -> None:
    recorded = fold(bundled("market"))
    forks = {path.tokens[0].entropy for path in recorded.paths if path.parent >= 0}
    before, lowest = recorded.started.threshold_nats, min(forks)
    assert before < lowest - 0.02
    same, less = (fold(resimulate(bundled("market"), nats).events) for nats in (lowest, 1.0))
    words = f"No fork changes between {before:.2f} and {lowest:.2f} nats: 3 forks, 7 paths."
    assert tree_change_sentence(recorded, same) == words
    assert tree_change_sentence(recorded, less).startswith("At 1.00 nats: 2 forks, 5 paths; rec")
    lower = fold(resimulate(bundled("count"), 0.05).events)
    assert lower.started.what_if == "approximate"
    assert tree_change_sentence(fold(bundled("count")), lower).startswith("At 0.05 nats")
