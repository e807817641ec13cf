"""The fold from events to tree, samples and measurements, at every prefix."""

import pytest
from equality import untimed
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import appended, predicted
from made_runs import events_of
from msgspec import structs
from saying_model import flat_run

from eab import token_text
from eab.config import BranchingConfig
from eab.engine.loop import event_stream, stop_when
from eab.engine.request import Request
from eab.errors import MemoryLimitError, RecordError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold, fold_prefix, largest_first
from eab.run.events import (
    Event,
    Forked,
    Growth,
    KvMeasured,
    KVUsage,
    NewWeight,
    PathFinished,
    Predicted,
    Probed,
    Pruned,
    Reweighted,
    RowsAllocated,
    RunEnded,
    RunStarted,
    StepTimed,
)

MODEL = TableModel(random_table(2, 5), stop_ids=[4])
STARTED = RunStarted("0", (0,), (" 0",), MODEL.card, BranchingConfig(), 0.65)
CONFIG = BranchingConfig(entropy_threshold=0.4, max_paths=6, max_new_tokens=8)
EVENTS = events_of(MODEL, "0", CONFIG)
ROOT = [STARTED, predicted(0, 0, 1.0)]
FORK = Forked(0, 0, (1, 2), (0.5, 0.5), 1)


def hand_made(texts: list[str], special: bool = False) -> list[Event]:
    """The events of one path with these token texts."""
    events: list[Event] = [STARTED]
    for step, text in enumerate(texts):
        events += [predicted(step, 0, 1.0), appended(step, 0, 7, text, -0.5, special)]
    return events


def test_the_repr_of_a_run_shows_its_prompt_its_size_and_how_it_ended():
    events = hand_made([" a", " b"])
    assert repr(fold(events)) == "<Run of '0': 0 steps, 1 path, 1 text, unfinished>"
    long = structs.replace(STARTED, prompt="word\n" * 20)
    assert repr(fold([long])).startswith("<Run of 'word\\nword\\n")
    assert len(repr(fold([long]))) < 120
    run = fold(EVENTS)
    assert f"{len(run.paths)} paths, {len(run.leaves())} texts, finished>" in repr(run)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"policy": "original"},
        {"threshold_unit": "rank", "entropy_threshold": 2.0},
        {"seed": 5, "r": 1},
    ],
)
def test_every_prefix_of_the_events_folds(settings):
    events = events_of(MODEL, "0", CONFIG, **settings)
    for length in range(len(events) + 1):
        state = fold_prefix(events[:length])
        run = state.run
        if run is None:
            assert all(isinstance(event, Probed) for event in events[:length])
            continue
        kept = [
            structs.replace(each, text="") if isinstance(each, Probed) else each for each in events
        ]
        assert run.events == kept[:length]
        for sample in run.samples:
            assert sample.log_prob == pytest.approx(sum(sample.log_probs))
            assert sample.finish_reason in ("stop", "length", "unfinished")
        assert run.tokens_needed >= run.tokens_through_model >= 0
        assert (run.peak_kv is None) == (run.last_kv is None)
    assert run.ended.reason == "finished"
    run.raise_if_failed()
    assert all(sample.finish_reason != "unfinished" for sample in run.samples)
    weights = [sample.weight for sample in run.samples]
    assert weights == sorted(weights, reverse=True)
    for sample in run.samples:
        parents = [run.paths[path].parent for path in sample.lineage]
        assert parents == [-1, *sample.lineage[:-1]]
    kvs = [step.kv for step in run.steps if step.kv is not None]
    peak = run.peak_kv.rows_shared + run.peak_kv.rows_private
    assert peak == max(kv.rows_shared + kv.rows_private for kv in kvs)
    if not run.probe:
        assert run.tokens_through_model == 1 + sum(len(kv.paths) for kv in kvs[1:])


def test_texts_join_characters_that_are_split_between_tokens_and_leave_out_control_tokens():
    euro = "€".encode()
    [sample] = fold(
        hand_made(["a", token_text.from_bytes(euro[:1]), token_text.from_bytes(euro[1:])])
    ).samples
    assert sample.text == "a€"
    assert b"".join(token_text.to_bytes(token.text) for token in sample.tokens) == b"a\xe2\x82\xac"
    [sample] = fold(hand_made(["<|end|>"], special=True)).samples
    assert (sample.text, [token.text for token in sample.tokens]) == ("", ["<|end|>"])


def test_each_token_keeps_the_entropy_that_its_decision_saw():
    decided = [event for event in EVENTS if isinstance(event, Predicted)]
    entropies = {
        (event.step, seen.path): seen.entropy for event in decided for seen in event.predictions
    }
    run = fold(EVENTS)
    for path in run.paths:
        for token in path.tokens:
            origin = path.parent if path.parent >= 0 and token is path.tokens[0] else path.id
            assert token.entropy == entropies[token.step, origin]


@pytest.mark.parametrize(
    "broken",
    [
        [predicted(0, 0, 1.0)],
        [KvMeasured(0, KVUsage(0, 0, 0, 0, 0, ()))],
        [STARTED, STARTED],
        [STARTED, predicted(0, 5, 1.0)],  # a path that does not exist
        [STARTED, appended(0, 0, 1, "a", 0.0)],
        [*ROOT, appended(1, 0, 1, "a", 0.0)],
        [*ROOT, appended(0, 1, 1, "a", 0.0)],
        [*ROOT, appended(0, -1, 1, "a", 0.0)],
        [STARTED, Pruned(0, 3)],
        [STARTED, Reweighted(0, (NewWeight(-1, 0.5),))],
        [STARTED, PathFinished(0, 1, "stop")],
        [STARTED, FORK],
        [*ROOT, Forked(0, 0, (2, 3), (0.5, 0.5), 2)],
        [*ROOT, Forked(0, 0, (0, 1), (0.5, 0.5), 1)],
        [*ROOT, Forked(0, 7, (1, 2), (0.5, 0.5), 1)],
        [*ROOT, Forked(0, 0, (1, 2), (0.5, 0.3, 0.2), 1)],  # one weight too many
        [*ROOT, FORK, Forked(0, 0, (3, 4), (0.5, 0.5), 3)],  # it has forked
        [*ROOT, FORK, appended(0, 0, 1, "b", -1.0)],
        [STARTED, RowsAllocated(1, Growth(1, 0, 0, 0))],
        [STARTED, StepTimed(-1, 1, 0.0, 0.0)],
        [STARTED, StepTimed(10**12, 1, 0.0, 0.0)],
    ],
    ids=lambda events: "-".join(type(event).__name__ for event in events),
)
def test_events_that_cannot_follow_each_other_are_refused(broken):
    fold_prefix(broken[:-1])
    with pytest.raises(RecordError):
        fold(broken)


def test_a_stopped_run_keeps_its_tree_and_is_marked_as_stopped():
    seen = 0

    def stop() -> bool:
        nonlocal seen
        seen += 1
        return seen == 3

    long = BranchingConfig(entropy_threshold=0.4, max_new_tokens=30)
    events = list(stop_when(event_stream(MODEL, Request("0", long)), stop))
    assert events[-1] == RunEnded(3, "stopped")
    assert sum(isinstance(event, StepTimed) for event in events) == 3
    run = fold(events)
    assert sum(sample.weight for sample in run.samples) == pytest.approx(1)
    assert any(sample.finish_reason == "unfinished" for sample in run.samples)
    probed = BranchingConfig(threshold_unit="rank", entropy_threshold=2.0, max_new_tokens=5)
    events = list(stop_when(event_stream(MODEL, Request("0", probed)), lambda: True))
    assert [type(event) for event in events] == [Probed, RunEnded], "a probe can be stopped, too"


def test_a_run_that_is_not_stopped_passes_through_unchanged():
    passed = list(stop_when(event_stream(MODEL, Request("0", CONFIG)), lambda: False))
    assert len(passed) == len(EVENTS)
    assert untimed(passed) == untimed(EVENTS)


def test_a_run_that_ended_during_its_probe_has_not_started_and_one_that_failed_has():
    state = fold_prefix([Probed(0, 1.0), RunEnded(0, "stopped")])
    assert state.run is None
    assert state.ended == RunEnded(0, "stopped")
    with pytest.raises(RecordError, match="has not started"):
        state.started_run()
    with pytest.raises(RecordError, match="after its end"):
        state.apply(STARTED)
    with pytest.raises(MemoryLimitError, match="no room"):
        fold([Probed(0, 1.0), RunEnded(0, "failed", "no room")])
    chunks = fold([STARTED, StepTimed(0, 5, 2.0, 1.5), StepTimed(0, 3, 1.0, 0.5)])
    assert chunks.steps[0].timing == StepTimed(0, 8, 3.0, 2.0), "of a prompt, they add up"
    failed = fold([*hand_made(["a"]), RunEnded(1, "failed", "too much")])
    assert failed.samples[0].text == "a"
    with pytest.raises(MemoryLimitError, match="too much"):
        failed.raise_if_failed()


# ---- the order of samples: by weight, but by birth where weights differ only by rounding


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(-1e-9, 1e-9)), max_size=12),
    st.floats(1e-300, 1e300),
)
def test_the_last_bits_do_not_change_the_order(given, scale):
    exact = [scale * size for size, _ in given]
    rounded = [scale * size * (1 + error) for size, error in given]
    order = sorted(range(len(given)), key=lambda index: -given[index][0])  # stable
    assert largest_first(exact) == largest_first(rounded) == order


@pytest.mark.parametrize("error", [-1e-16, 1e-16])
def test_samples_of_equal_weight_are_in_order_of_birth(error: float) -> None:
    texts = [("b", 0.25, 0.25, True), ("a", 0.25 + error, 0.25, True), ("c", 0.5, 0.5, True)]
    assert [sample.text for sample in flat_run(texts).samples] == ["c", "b", "a"]
