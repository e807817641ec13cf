"""The probability of a property, from the tree of one run."""

import math

import numpy as np
import pytest
from table_model import TableModel, random_table

from eab import EntropyAdaptiveBranching, Run
from eab.errors import ConfigError

LENGTH, RUNS = 4, 500
EXACT = {"max_new_tokens": LENGTH, "entropy_threshold": 0.8, "temperature": 1, "top_p": 1}


def exact(model, has):
    texts = model.all_texts(0, LENGTH)
    return math.fsum(mass for tokens, mass in texts if has(written(tokens, model)))


def written(tokens, model):
    return "".join(model.text(token) for token in tokens if token not in model.stop_ids)


@pytest.mark.parametrize("policy", ["fair", "arithmetic", "independent", "stochastic-beam"])
@pytest.mark.parametrize("of", [" 2", lambda text: text.count(" 1") >= 2])
def test_weights_are_unbiased_and_bounds_hold_in_every_run(policy, of):
    model = TableModel(random_table(3, 5), stop_ids=[4])
    has = of if callable(of) else lambda text: of in text
    expected = exact(model, has)
    explorer = EntropyAdaptiveBranching(model, policy=policy, max_paths=4, **EXACT)
    estimates = []
    for seed in range(RUNS):
        run = explorer.run([0], seed=seed)
        found = run.probability(of)
        assert found.low - 1e-9 <= expected <= found.high + 1e-9
        assert found.low <= found.estimate <= found.high
        estimates.append(sum(each.weight for each in run.samples if has(each.text)))
    error = np.std(estimates) / math.sqrt(RUNS)
    if policy != "stochastic-beam":  # its weights are consistent, not unbiased
        assert abs(np.mean(estimates) - expected) < 4 * error


def test_a_text_that_is_there_decides_all_that_follows():
    model = TableModel(random_table(3, 5), stop_ids=[4])
    explorer = EntropyAdaptiveBranching(model, max_paths=1, policy="greedy", **EXACT)
    run = explorer.run([0])
    first = run.samples[0].tokens[0]
    by_text = run.probability(first.text)
    assert by_text.low == pytest.approx(math.exp(first.log_prob)), "not of the whole text"
    by_function = run.probability(lambda text: first.text in text)
    assert by_function.low == pytest.approx(math.exp(run.samples[0].log_prob))
    assert by_text.high == by_function.high == 1


def test_bounds_only_shrink_as_a_run_goes_on():
    model = TableModel(random_table(8, 5), stop_ids=[4])
    explorer = EntropyAdaptiveBranching(model, max_paths=6, **EXACT)
    events, before = [*explorer.stream([0])], (0.0, 1.0)
    for count in range(2, len(events) + 1):
        found = Run(events[:count]).probability(" 2")
        assert found.low >= before[0] - 1e-12
        assert found.high <= before[1] + 1e-12
        before = found.low, found.high
    assert before[1] - before[0] < 1


def test_what_a_stop_string_cuts_off_is_not_in_the_text():
    table = np.full((4, 4), 1e-12)
    table[0, 1] = table[1, 2] = table[2, 3] = table[3, 3] = 1
    model = TableModel(table / table.sum(axis=1, keepdims=True))
    explorer = EntropyAdaptiveBranching(model, stop=["2 3"], **EXACT)
    run = explorer.run([0])
    assert run.samples[0].text == " 1 "
    assert run.probability(" 2").high < 1e-6
    assert run.probability(" 1").low > 1 - 1e-6


@pytest.mark.parametrize("of", ["", 3, None, lambda text: "yes"])
def test_what_is_no_property_is_refused(of):
    model = TableModel(random_table(3, 5), stop_ids=[4])
    run = EntropyAdaptiveBranching(model, **EXACT).run([0])
    with pytest.raises(ConfigError, match="property"):
        run.probability(of)
