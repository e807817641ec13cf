"""Fork attribution: a worked example, and contributions that add up to the whole on any tree."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import CARD, appended, invented_run, predicted
from saying_model import flat_run

from eab.analysis.answer_rules import RULES
from eab.analysis.answers import entropy, group_answers
from eab.analysis.uncertainty import attribute_to_forks
from eab.config import BranchingConfig
from eab.run import RunState, fold
from eab.run.events import Event, Forked, PathFinished, RunStarted

# path: its parent, its weight, the text of its token
TREE = {
    1: (0, 0.6, " I think it is"),
    2: (0, 0.4, " It is"),
    3: (1, 0.3, " Paris"),
    4: (1, 0.3, " paris."),
    5: (2, 0.2, " Rome"),
    6: (2, 0.2, " Lyon"),
}


def two_level_run() -> RunState:
    """The first fork separates Paris from the rest. Below it, one fork words Paris, one decides."""
    events: list[Event] = [RunStarted("p", (0,), ("p",), CARD, BranchingConfig(), 1.0)]
    for step, parents in enumerate([(0,), (1, 2)]):
        for parent in parents:
            born = tuple(path for path, (its_parent, *_) in TREE.items() if its_parent == parent)
            weights = tuple(TREE[path][1] for path in born)
            fork = Forked(step, parent, born, weights, born[0])
            events += [predicted(step, parent, 1.0), fork]
            for path in born:
                share = TREE[path][1] / math.fsum(weights)
                events.append(appended(step, path, path, TREE[path][2], math.log(share)))
    return fold([*events, *(PathFinished(1, path, "stop") for path in (3, 4, 5, 6))])


def test_a_worked_example() -> None:
    """One branch of the first fork leads only to two wordings of Paris."""
    run = two_level_run()
    last_word = group_answers(
        run, "text", lambda _, one, other: RULES["exact"]("", one.split()[-1], other.split()[-1])
    )
    assert [one.estimate for one in last_word.ranked] == pytest.approx([0.6, 0.2, 0.2])
    first, below, wording = attribute_to_forks(run, last_word)
    assert (first.path, below.path, wording.path) == (0, 2, 1)
    assert first.information == pytest.approx(entropy([0.6, 0.4]))
    assert first.contribution == 1.0  # all of the entropy of its tokens
    assert first.decisiveness == pytest.approx(1.0)
    assert below.weight == pytest.approx(0.4)
    assert below.information == pytest.approx(math.log(2))
    assert (wording.weight, wording.branch_entropy) == pytest.approx((0.6, math.log(2)))
    assert wording.contribution == pytest.approx(0.0)
    assert wording.decisiveness == pytest.approx(0.0)


def test_a_branch_without_an_answer_is_ignored() -> None:
    run = flat_run([("a", 0.5, 0.5, True), ("b", 0.5, 0.4, False)])
    assert attribute_to_forks(run, group_answers(run)) == ()


@given(st.integers(0, 500), st.integers(0, 20), st.integers(1, 12), st.floats(0, 1))
def test_the_contributions_add_up_in_any_run_even_after_pruning(seed, steps, paths, until):
    events = invented_run(seed, steps, paths)
    run = fold(events[: max(1, int(until * len(events)))])
    for part in ("text", "sentence"):
        answers = group_answers(run, part)
        forks = attribute_to_forks(run, answers)
        total = math.fsum(fork.weight * fork.information for fork in forks)
        weights = [sum(run.paths[leaf].weight for leaf in one.leaves) for one in answers.ranked]
        assert total == pytest.approx(entropy(weights), abs=1e-9)
        assert all(0 <= fork.weight <= 1 + 1e-9 for fork in forks)
        assert all(0 <= fork.information <= fork.branch_entropy + 1e-9 for fork in forks)
