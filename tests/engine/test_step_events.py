"""What a step says: bounds on the entropy from the most likely tokens, and whether the run ends,
because its answer is certainly the one that it would have had.
"""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import run_of
from saying_model import saying_model

from eab import EntropyAdaptiveBranching, Run
from eab.analysis.answers import group_answers
from eab.analysis.label_rules import labelled
from eab.analysis.labels import NO_LABEL
from eab.config import BranchingConfig, PolicyName
from eab.engine.step_events import entropy_bounds
from eab.errors import ConfigError
from eab.lessons.checks.policy import TableModel
from eab.run import fold
from eab.run.events import Predicted
from eab.run.record import dumps, loads

masses = st.lists(st.floats(0.0, 1.0, allow_subnormal=False), min_size=2, max_size=60).filter(
    lambda values: sum(values) > 0.01
)


def entropy(probs: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probs if p > 0)


def bounds(known: list[float], vocab_size: int) -> tuple[float, float]:
    logs = [math.log(p) if p > 0 else -math.inf for p in known]
    low, high = entropy_bounds(torch.tensor([logs], dtype=torch.float64), vocab_size)[0].tolist()
    return low, high


@given(masses, st.data())
def test_the_entropy_lies_within_the_bounds(values: list[float], data: st.DataObject) -> None:
    probs = sorted((value / sum(values) for value in values), reverse=True)
    top = data.draw(st.integers(1, len(probs)))
    low, high = bounds(probs[:top], len(probs))
    assert low - 1e-9 <= entropy(probs) <= high + 1e-9
    more = bounds(probs[: top + 1], len(probs))
    assert low - 1e-9 <= more[0]
    assert more[1] <= high + 1e-9, "more tokens narrow the bounds"


@pytest.mark.parametrize(
    ("known", "vocab_size", "least", "most"),
    [
        # 0.6 is left: three tokens of 0.2 for the lower bound, ten of 0.06 for the upper.
        ([0.2, 0.2], 12, [0.2] * 5, [0.2, 0.2, *[0.06] * 10]),
        # 0.3 is left: one token of 0.3 for the lower bound, four of 0.075 for the upper.
        ([0.4, 0.3], 6, [0.4, 0.3, 0.3], [0.4, 0.3, *[0.075] * 4]),
        ([0.5, 0.2], 7, [0.5, 0.2, 0.2, 0.1], [0.5, 0.2, *[0.06] * 5]),
        # Nothing is left.
        ([0.7, 0.3], 50, [0.7, 0.3], [0.7, 0.3]),
        # All tokens are known.
        ([0.5, 0.3, 0.2], 3, [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
        # All are equal: no other token may be likelier than the last known one.
        ([0.25], 4, [0.25] * 4, [0.25] * 4),
        ([1.0], 9, [1.0], [1.0]),
    ],
)
def test_the_bounds_are_attained(known, vocab_size, least, most):
    low, high = bounds(known, vocab_size)
    assert low == pytest.approx(entropy(least), abs=1e-9)
    assert high == pytest.approx(entropy(most), abs=1e-9)


def test_rows_may_know_different_numbers_of_tokens_and_their_sum_may_be_above_one():
    found = entropy_bounds(torch.tensor([[0.5, 0.2, 0.1], [0.9, 0.0, 0.0]]).log(), 30).tolist()
    assert found[0] == pytest.approx(bounds([0.5, 0.2, 0.1], 30), abs=1e-6)
    assert found[1] == pytest.approx(bounds([0.9], 30), abs=1e-6)
    low, high = bounds([0.7, 0.3001], 4096)
    assert low == pytest.approx(high, abs=1e-3)


POLICIES = get_args(PolicyName)


def same_events(events):
    """What was decided, without times and bytes."""
    kept = ("Forked", "TokensAppended", "Pruned", "PathFinished")
    return [event for event in events if type(event).__name__ in kept]


def leader(run):
    """The answer or label that leads; what certainly leads, with its bounds."""
    if run.started.config.label_words:
        labels = labelled(run, run.labels)
        lows = {each.name: each.low for each in labels} | {NO_LABEL: labels.unlabelled}
        name, unexplored = labels.winner, labels.unexplored
    else:
        answers = group_answers(run, "sentence")
        lows, unexplored = {each.name: each.low for each in answers.ranked}, 1 - answers.explored
        name = answers.winner.name if answers.winner else None
    low = lows.get(name, 0)
    return max(lows, key=lows.__getitem__, default=None), name, (low, low + unexplored)


@settings(max_examples=80)
@given(
    st.integers(0, 40),
    st.sampled_from(POLICIES),
    st.integers(0, 3),
    st.floats(0.3, 1.5),
    st.sampled_from([(), ("paris",), ("Rome", "1.5"), ("15", "paris the", "rome! rome")]),
)
def test_a_decided_answer_is_that_of_the_whole_run(number, policy, seed, heat, words):
    model = saying_model(number, 0.4)
    config = BranchingConfig(
        policy=policy,
        max_paths=6,
        max_new_tokens=6,
        entropy_threshold=0.5,
        temperature=heat,
        seed=seed,
        label_words=words,
    )
    whole = run_of(model, "0", config)
    run = run_of(model, "0", replace(config, stop_when="decided"))
    count = len(same_events(run.events))
    assert same_events(run.events) == same_events(whole.events)[:count]
    if run.ended.reason == "finished":
        assert same_events(run.events) == same_events(whole.events)
        return
    assert run.ended.reason == "decided"
    (_, name, bounds), (first, later, later_bounds) = leader(run), leader(whole)
    assert name == later == first
    assert bounds[0] - 1e-9 <= later_bounds[0] <= bounds[1] + 1e-9
    last = [event for event in run.events if getattr(event, "step", -1) < run.ended.step - 1]
    before = fold([event for event in last if type(event).__name__ != "RunEnded"])
    assert leader(before)[1] is None, "it ends at the first such step"


def test_a_word_of_the_settings_labels_the_run_and_decides_it():
    explorer = EntropyAdaptiveBranching("embedded", max_new_tokens=40, label_words="APPLES")
    prompt = "Grandma went to the market and bought some"
    whole, run = (explorer.run(prompt, stop_when=when) for when in ("ended", "decided"))
    assert (whole.ended.reason, run.ended.reason) == ("finished", "decided")
    assert run.tokens_through_model < whole.tokens_through_model / 2
    assert run.labelled().winner == whole.labelled().winner == "APPLES"
    assert run.labelled()["APPLES"].low == pytest.approx(whole.probability("apples").low)
    again = Run(loads(dumps(run.events)))
    assert again.ended == run.ended
    assert again.labelled() == run.labelled()
    assert run.what_if(r=9).ended.reason == "decided"
    nearly = explorer.run(prompt, stop_when="explored", explored_goal=0.7)
    assert nearly.ended.reason == "explored"
    assert 1 - nearly.labelled().unexplored >= 0.7
    by_answer = explorer.run(prompt, stop_when="decided", label_words=())
    assert by_answer.ended.reason == "decided"
    plain = explorer.run(prompt, label_words=())
    assert by_answer.answers("sentence").winner.name == plain.answers("sentence").winner.name
    assert by_answer.tokens_left == 2 * (40 - 4), "two live texts of four tokens"
    with pytest.raises(ConfigError, match="ended before its texts did"):
        explorer.explore(by_answer)
    never = explorer.run(prompt, stop_when="decided", label_words=["zebra"])
    assert never.ended.reason == "finished", "a text without the word may still get it"
    assert never.labelled().winner == NO_LABEL


@pytest.mark.parametrize("early", [{"token_budget": 7}, {"stop_when": "explored"}], ids=str)
def test_with_drafts_it_ends_at_the_same_token_though_a_pass_decides_several(early):
    chain = TableModel([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    asked = {"policy": "greedy", "max_new_tokens": 20, **early}
    chain.text = lambda token: [" it", " was.", " And"][token]
    prompt = "0 1 2 0 1 2 0 1 2"
    plain = run_of(chain, prompt, BranchingConfig(**asked))
    drafted = run_of(chain, prompt, BranchingConfig(**asked, drafter="prompt-lookup"))
    assert drafted.forward_passes < plain.forward_passes, "a pass decides several steps"
    assert drafted.ended == plain.ended
    assert same_events(drafted.events) == same_events(plain.events)


def test_exploring_and_repeating_are_never_cut_short_by_it():
    explorer = EntropyAdaptiveBranching(
        "embedded", max_new_tokens=8, stop_when="decided", temperature=1.2, top_p=1
    )
    run = explorer.run("Once upon a time, there was a")
    assert run.ended.reason == "finished", "too little of it is explored to decide anything"
    explored = explorer.explore(run, until=0.01, most=4).explored
    assert {each.finish_reason for each in explored} == {"length"}
    assert len(explorer.repeat(run).complete_repeats) == 7
    first = explorer.run("Once upon a time, there was a", seed=1)
    needed = sum(len(each.predictions) for each in first.events if isinstance(each, Predicted))
    within = explorer.run("Once upon a time, there was a", seed=1, token_budget=needed)
    assert within.ended.reason == "finished", "other seeds need more"
    texts = [text for each in explorer.repeat(within).repeats.values() for text in each]
    assert {len(text.tokens) for text in texts} == {8}
