"""While no limit acts, a higher threshold gives a subtree: more forks never change what is there
already.
"""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of

from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import LimitActed

NO_FORK = 20.0


def grow(model: TableModel, threshold: float, **settings: object) -> RunState:
    events = events_of(model, "0", entropy_threshold=threshold, max_paths=256, **settings)
    assert not any(isinstance(event, LimitActed) for event in events)
    return fold(events)


def prefixes(run: RunState) -> set[tuple[int, ...]]:
    """All nodes of the tree, each as the token ids from the root to it."""
    texts = [sample.token_ids for sample in run.samples]
    return {text[:length] for text in texts for length in range(len(text) + 1)}


@settings(max_examples=50)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 6),
    thresholds=st.lists(st.floats(0.0, 1.8), min_size=2, max_size=4),
    factor=st.integers(2, 3),
    stops=st.sets(st.integers(0, 5), max_size=2),
    top_p=st.sampled_from([1.0, 0.9]),
    seed=st.integers(0, 2**63 - 1),
)
def test_the_tree_at_a_higher_threshold_is_a_subtree_of_the_one_at_a_lower(
    chain, size, thresholds, factor, stops, top_p, seed
):
    model = TableModel(random_table(chain, size), sorted(stops))
    settings = {"branch_factor": factor, "max_new_tokens": 5, "seed": seed, "top_p": top_p}
    trees = [
        prefixes(grow(model, threshold, **settings)) for threshold in sorted([*thresholds, NO_FORK])
    ]
    for lower, higher in itertools.pairwise(trees):
        assert higher <= lower


@settings(max_examples=30)
@given(chain=st.integers(0, 10**6), seed=st.integers(0, 1000), threshold=st.floats(0.0, 1.2))
def test_the_heirs_of_a_tree_form_the_run_that_never_forks(chain, seed, threshold):
    model = TableModel(random_table(chain, 5), stop_ids=[4])
    settings = {"branch_factor": 3, "max_new_tokens": 5, "seed": seed}
    [alone] = grow(model, NO_FORK, **settings).samples
    tree = grow(model, threshold, **settings)
    heirs = [
        leaf
        for leaf in tree.leaves()
        if all(tree.paths[path].heir for path in tree.lineage(leaf.id))
    ]
    assert [tree.sample(leaf.id).token_ids for leaf in heirs] == [alone.token_ids]


def test_the_compared_thresholds_give_trees_of_different_sizes():
    model = TableModel(random_table(5, 6, steps=5))
    sizes = [
        len(prefixes(grow(model, threshold, max_new_tokens=5)))
        for threshold in (0.0, 1.1, 1.3, NO_FORK)
    ]
    assert sizes == sorted(set(sizes), reverse=True)
