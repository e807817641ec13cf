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
