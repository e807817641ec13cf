"""Two runs as one tree, independent sampling as a policy, and the meaning of "the same budget". A
grown run in the tree of its source: the tree has all texts of both, ids do not change, and bad
pairs are refused. Means over seeds, their intervals, and the coverage of the intervals.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import bundled, events_of, run_of
from msgspec import structs

from eab.analysis.run_comparison import (
    Side,
    average_seen,
    graft,
    independent_config,
    is_new,
    mean,
    mean_tokens_per_text,
    merge,
    paired_difference,
    same_prompt,
    student,
    texts_of,
)
from eab.board.messages import diff_message, graft_message
from eab.board.still import tidy
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.figures.run_comparison import (
    diff_rows,
    diff_table,
    diff_tree_sentence,
    measures_of,
    takeaway_sentence,
)
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import Event, Forked, RunStarted

LENGTH = 6
CONFIG = BranchingConfig(max_new_tokens=LENGTH)


def grown(model: TableModel, **settings: object) -> RunState:
    return run_of(model, "0 1", CONFIG, **settings)


def prefixes(run: RunState) -> set[tuple[int, ...]]:
    return {text[:length] for text in texts_of(run) for length in range(1, len(text) + 1)}


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    thresholds=st.tuples(st.floats(0.0, 1.5), st.floats(0.0, 1.5)),
    policies=st.tuples(*[st.sampled_from(["fair", "original", "independent"])] * 2),
    seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    max_paths=st.integers(1, 9),
)
def test_the_merged_tree_has_every_token_once_with_its_side(
    chain, thresholds, policies, seeds, max_paths
):
    model = TableModel(random_table(chain, 4), stop_ids=[3])
    a, b = (
        grown(model, entropy_threshold=threshold, policy=policy, seed=seed, max_paths=max_paths)
        for threshold, policy, seed in zip(thresholds, policies, seeds, strict=True)
    )
    both = merge(a, b)
    found: dict[tuple[int, ...], Side] = {}
    for path, side in zip(both.run.paths, both.sides, strict=True):
        assert path.parent < path.id
        assert not path.tokens or path.born == path.tokens[0].step
        assert all(both.run.paths[child].parent == path.id for child in path.children)
        before = [token.id for token in both.run.tokens(path.id)]
        for length in range(len(before) - len(path.tokens) + 1, len(before) + 1):
            assert tuple(before[:length]) not in found
            found[tuple(before[:length])] = side
    assert {prefix for prefix, side in found.items() if side != "b"} == prefixes(a)
    assert {prefix for prefix, side in found.items() if side != "a"} == prefixes(b)
    tidy(both.run)
    json.dumps(diff_message(a, b, "key"), allow_nan=False)


def test_a_run_compared_with_itself_is_all_in_both_and_costs_the_same() -> None:
    run = fold(bundled("market"))
    both = merge(run, run)
    assert set(both.sides) == {"both"}
    assert len(both.run.paths) == len(run.paths)
    tokens = sum(len(path.tokens) for path in run.paths)
    assert diff_tree_sentence(both).startswith(f"{tokens} tokens in both")
    assert "0 only in A, 0 only in B" in diff_tree_sentence(both)
    assert {row[3] for row in diff_rows(run, run)} == {"the same"}
    what_if = [
        structs.replace(event, what_if="exact") if isinstance(event, RunStarted) else event
        for event in run.events
    ]
    seconds = next(row for row in diff_rows(run, fold(what_if)) if row[0] == "seconds")
    assert seconds[2:] == ("–", "–"), "which a what-if has not"


def test_differences_are_in_words_and_there_is_no_ratio_to_zero() -> None:
    a, b = fold(bundled("market")), fold(bundled("coin"))
    assert not same_prompt(a, b)
    assert "different prompts" in takeaway_sentence(a, b)
    tree, samples = fold(bundled("coins")), bundled_runs.samples().run
    forks, back = (
        next(row[3] for row in diff_rows(a, b) if row[0] == "forks")
        for a, b in ((tree, samples), (samples, tree))
    )
    count = measures_of(tree)["forks"]
    assert (forks, back) == (f"{count} fewer", f"{count} more")
    differences = [row[3] for row in diff_rows(tree, samples)]
    assert not any("(0×)" in words or words[0] in "+−±" for words in differences)
    table = diff_table(tree, samples).set_index("measure")
    assert table.loc["tokens", "a"] == tree.tokens_through_model
    assert table.loc["distinct", "b"] == len(set(texts_of(samples)))


def test_a_path_in_both_runs_has_a_weight_in_each() -> None:
    a, b = fold(bundled("coins")), bundled_runs.samples().run
    both = merge(a, b)
    message = diff_message(a, b, "key")
    leaves = [path for path in both.run.paths if not path.children]
    in_a = [path.weight for path in leaves if both.sides[path.id] != "b"]
    in_b = [
        path.weight if (weight := message["weights_in_b"][path.id]) is None else weight
        for path in leaves
        if both.sides[path.id] != "a"
    ]
    assert math.fsum(in_a) == pytest.approx(1, abs=1e-5)
    assert math.fsum(in_b) == pytest.approx(1, abs=1e-5)


def test_independent_texts_fork_once_and_do_not_depend_on_their_number() -> None:
    """The first of these texts is that of a run that never forks."""
    model = TableModel(random_table(3, 5), stop_ids=[4])
    few, many = (
        events_of(model, "0", CONFIG, policy="independent", max_paths=count) for count in (3, 8)
    )
    assert [len(event.children) for event in many if isinstance(event, Forked)] == [8]
    texts = [list(texts_of(fold(events))) for events in (few, many)]
    assert texts[1][:3] == texts[0]
    equal = grown(TableModel([[0.5, 0.5], [0.5, 0.5]]), policy="independent", max_paths=200)
    both, counts = merge(equal, equal), Counter(texts_of(equal))
    leaves = [path for path in both.run.paths if not path.children]
    assert len(leaves) == len(counts) < 200, "equal texts are one path with their total weight"
    for leaf in leaves:
        text = tuple(token.id for token in both.run.tokens(leaf.id))
        assert math.isclose(leaf.weight, counts[text] / 200)
    assert texts[0][:1] == [*texts_of(run_of(model, "0", CONFIG, entropy_threshold=20.0))]
    assert {leaf.weight for leaf in fold(many).leaves()} == {1 / 8}


def test_a_budget_is_the_number_of_texts_or_of_tokens_through_the_model() -> None:
    model = TableModel(random_table(5, 6), stop_ids=[5])
    tree = grown(model, entropy_threshold=1.0, max_paths=64)
    assert independent_config(tree, "texts").max_paths == len(tree.leaves())
    spent, paid = [], []
    for seed in range(40):
        tree = grown(model, entropy_threshold=1.0, max_paths=64, seed=seed)
        config = independent_config(tree, "tokens")
        assert (config.policy, config.cache, config.seed) == ("independent", "tree", seed)
        spent.append(run_of(model, "0 1", config).tokens_through_model)
        paid.append(tree.tokens_through_model)
    assert 0.9 < sum(spent) / sum(paid) < 1.1
    run = grown(TableModel(random_table(5, 6)), entropy_threshold=20.0)
    assert mean_tokens_per_text(run) == LENGTH - 1, "all but the last"
    assert run.tokens_through_model == 2 + mean_tokens_per_text(run)


def test_the_computed_average_of_independent_samples_agrees_with_many_seeds() -> None:
    model = TableModel(random_table(5, 3), stop_ids=[2])
    tree = grown(model, entropy_threshold=0.0, max_paths=256, branch_factor=3)
    assert measures_of(tree)["explored"] > 0.9
    expected = average_seen(tree, 4)
    assert expected is not None
    seen = [
        measures_of(grown(model, policy="independent", max_paths=4, seed=seed))["explored"]
        for seed in range(200)
    ]
    error = 4 * statistics.stdev(seen) / math.sqrt(len(seen))
    low, high = expected
    assert low - error < statistics.mean(seen) < high + error
    assert average_seen(fold(bundled("ball")), 12) is None, "it explored little"


COINS = BranchingConfig(
    entropy_threshold=0.5, branch_factor=2, max_paths=6, max_new_tokens=6, min_fork_weight=0.05
)


@pytest.fixture(scope="module")
def source(embedded: HuggingFaceModel) -> RunState:
    return run_of(embedded, "I tossed three coins:", COINS)


Grow = Callable[[tuple[int, ...]], list[Event]]


@pytest.fixture(scope="module")
def grow(embedded: HuggingFaceModel, source: RunState) -> Grow:
    """A function `grow(continued)` that runs the same prompt, continued by these tokens."""
    prompt = source.started.prompt
    return lambda continued: list(event_stream(embedded, Request(prompt, COINS, continued)))


@pytest.fixture(scope="module")
def forced(source: RunState) -> tuple[int, ...]:
    """The tokens up to, and including, the first one of a path that has several."""
    path = next(one.id for one in source.paths if len(one.tokens) > 1)
    return source.continuation(path, source.tokens_before(path))


def texts(run: RunState) -> set[tuple[int, ...]]:
    return {tuple(token.id for token in run.tokens(leaf.id)) for leaf in run.leaves()}


@given(data=st.data())
def test_the_tree_has_the_texts_of_both_runs(data, source, grow):
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
    with pytest.raises(ValueError, match="does not continue"):
        graft(source, source)


def test_a_continuation_is_new_only_if_the_source_does_not_have_it(source: RunState) -> None:
    fork = next(one for one in source.paths if one.children)
    child = source.paths[fork.children[0]]
    assert not is_new(source, source.continuation(child.id, source.tokens_before(child.id)))
    known = {source.paths[one].tokens[0].id for one in fork.children}
    for number, candidate in enumerate(child.tokens[0].candidates):
        forced = source.continuation(child.id, source.tokens_before(child.id), number)
        assert is_new(source, forced) == (candidate.token not in known)
    leaf = source.leaves()[0]
    last = source.tokens_before(leaf.id) + len(leaf.tokens) - 1
    assert is_new(source, source.continuation(leaf.id, last))


def test_the_board_is_sent_all_paths_with_their_sides_while_the_run_grows(source, grow, forced):
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


def test_a_mean_of_three_seeds_by_hand() -> None:
    found = mean({1: 1.0, 2: 2.0, 3: 6.0})
    assert found.value == 3.0
    assert found.seeds == 3
    assert found.error == pytest.approx(math.sqrt(7 / 3))
    assert found.margin == pytest.approx(4.303 * math.sqrt(7 / 3))
    assert not found.excludes_zero
    single = mean({7: 5.0})
    assert single.margin is single.fresh(4) is None
    assert not single.excludes_zero
    assert mean({1: 0.5, 2: 0.5}).excludes_zero
    assert not mean({1: 0.0, 2: 0.0}).excludes_zero
    assert student(1) == 12.706
    assert student(11) == student(10) > student(12), "the larger of two neighbouring quantiles"
    assert student(10_000) == 1.980


@pytest.mark.parametrize("seeds", [2, 8])
def test_intervals_have_their_nominal_coverage(seeds: int) -> None:
    """95% of intervals contain the true mean, or a fresh one; 0.02 is four standard errors."""
    generator = np.random.default_rng(seeds)
    own, other = 0, 0
    for _ in range(2000):
        found = mean(dict(enumerate(generator.normal(3.0, 2.0, seeds).tolist())))
        own += abs(found.value - 3.0) <= found.margin
        other += abs(found.value - generator.normal(3.0, 2.0, 6).mean()) <= found.fresh(6)
    assert [own / 2000, other / 2000] == pytest.approx([0.95, 0.95], abs=0.02)


def test_a_difference_is_paired_by_seed() -> None:
    ours, theirs = {1: 10.0, 2: 20.0, 3: 30.0}, {1: 9.0, 2: 19.0, 4: 0.0}
    found = paired_difference(ours, theirs)
    assert (found.value, found.error, found.seeds) == (1.0, 0.0, 2)
    assert paired_difference(ours, {9: 1.0}) is None
    sums, turned = dict.fromkeys((1, 2), 0.1 + 0.2 + 0.3), dict.fromkeys((1, 2), 0.3 + 0.2 + 0.1)
    assert not paired_difference(sums, turned).excludes_zero, "it is due to rounding"
