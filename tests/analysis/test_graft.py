"""A grown run in the tree of its source: the tree has all texts of both, ids do not change, and
bad pairs are refused.
"""

import json
from collections.abc import Callable
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run_of

from eab.analysis.merged_runs import graft, is_new
from eab.board.messages import graft_message
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.run import RunState, fold
from eab.run.events import Event

CONFIG = BranchingConfig(
    entropy_threshold=0.5, branch_factor=2, max_paths=6, max_new_tokens=6, min_fork_weight=0.05
)


@pytest.fixture(scope="module")
def source(embedded: HuggingFaceModel) -> RunState:
    return run_of(embedded, "I tossed three coins:", CONFIG)


Grow = Callable[[tuple[int, ...]], list[Event]]


@pytest.fixture(scope="module")
def grow(embedded: HuggingFaceModel, source: RunState) -> Grow:
    """A function `grow(continued)` that runs the same prompt, continued by these tokens."""
    prompt = source.started.prompt
    return lambda continued: list(event_stream(embedded, Request(prompt, CONFIG, continued)))


@pytest.fixture(scope="module")
def forced(source: RunState) -> tuple[int, ...]:
    """The tokens up to, and including, the first one of a path that has several."""
    path = next(one.id for one in source.paths if len(one.tokens) > 1)
    return source.continuation(path, source.tokens_before(path))


def texts(run: RunState) -> set[tuple[int, ...]]:
    return {tuple(token.id for token in run.tokens(leaf.id)) for leaf in run.leaves()}


@given(data=st.data())
def test_the_tree_has_the_texts_of_both_runs(
    data: st.DataObject, source: RunState, grow: Grow
) -> None:
    path = data.draw(st.sampled_from([one for one in source.paths if one.tokens]))
    index = data.draw(st.integers(0, len(path.tokens) - 1))
    candidate = data.draw(st.integers(-1, len(path.tokens[index].candidates) - 1))
    grown = fold(
        grow(source.continuation(path.id, source.tokens_before(path.id) + index, candidate))
    )
    both = graft(source, grown)
    continued = grown.started.continued_tokens
    old = {text for text in texts(source) if text != continued}  # continued by the grown run
    assert texts(both.run) == old | {continued + text for text in texts(grown)}
    for number, one in enumerate(both.run.paths):
        assert one.id == number
        assert all(both.run.paths[child].parent == number for child in one.children)
        assert not one.tokens or one.born == one.tokens[0].step
    for leaf in both.run.leaves():
        steps = [token.step for token in both.run.tokens(leaf.id)]
        assert steps == list(range(len(steps))), "a text has one token per step"
    assert len(both.sides) == len(both.run.paths)
    grown_ids = {number for number, side in enumerate(both.sides) if side == "b"}
    assert grown_ids == set(range(len(both.run.paths) - len(grown.paths), len(both.run.paths)))


def test_path_ids_do_not_change_while_the_run_grows_and_the_source_stays_unchanged(
    source: RunState, grow: Grow, forced: tuple[int, ...]
) -> None:
    events, before = grow(forced), deepcopy(source.paths)
    places: dict[int, tuple[int, ...]] = {}
    versions = []
    for count in range(2, len(events) + 1, 5):
        both = graft(source, fold(events[:count]))
        versions.append(len(both.run.events))
        for one in both.run.paths:
            first = tuple(token.id for token in one.tokens[:1])
            assert places.setdefault(one.id, first) in (first, ())
    assert versions == sorted(versions)
    assert before == source.paths


def test_a_continuation_is_new_only_if_the_source_does_not_have_it(source: RunState) -> None:
    fork = next(one for one in source.paths if one.children)
    child = source.paths[fork.children[0]]
    assert not is_new(source, source.continuation(child.id, source.tokens_before(child.id) + 0))
    known = {source.paths[one].tokens[0].id for one in fork.children}
    for number, candidate in enumerate(child.tokens[0].candidates):
        forced = source.continuation(child.id, source.tokens_before(child.id) + 0, number)
        assert is_new(source, forced) == (candidate.token not in known)
    leaf = source.leaves()[0]
    assert is_new(
        source, source.continuation(leaf.id, source.tokens_before(leaf.id) + len(leaf.tokens) - 1)
    )


def test_a_run_that_does_not_continue_the_source_is_refused(source: RunState) -> None:
    with pytest.raises(ValueError, match="does not continue"):
        graft(source, source)


def test_the_board_is_sent_all_paths_with_their_sides_while_the_run_grows(
    source: RunState, grow: Grow, forced: tuple[int, ...]
) -> None:
    events = grow(forced)
    half, whole = (
        graft_message(source, fold(events[:count]), "both") for count in (len(events) // 2, None)
    )
    assert (half["mode"], whole["mode"]) == ("live", "replay")
    assert half["version"] < whole["version"]
    for message in (half, whole):
        assert len(message["sides"]) == len(message["paths"])
        assert message["graft"]
        last = max(path["born"] + len(path["tokens"]) - 1 for path in message["paths"])
        assert [step["step"] for step in message["steps"]] == list(range(last + 1))
        json.dumps(message, allow_nan=False)
