"""A policy given in Python: a rule for where paths fork, or a whole policy."""

from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from command_line import eab_here
from equality import assert_same_decisions
from estimates import CASES, assert_unbiased, weighted
from neutral_explorer import neutral_explorer
from page_data import data_of
from stepping import samples_of

import eab
from eab import BranchingConfig, Request
from eab.board.messages import board_message
from eab.engine.branching.fair import FairPolicy
from eab.engine.branching.policy import Seeded, children_of
from eab.engine.build import check_request
from eab.errors import ConfigError
from eab.figures.captions import tree_sentence
from eab.figures.run_comparison import takeaway_sentence
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold
from eab.share.exports import as_python

MODEL = TableModel(random_table(2, 9, concentration=2.0), stop_ids=[4])
SHORT = {"max_new_tokens": 6, "max_paths": 12, "drafter": "none"}


def margin(prediction, leaf, least=0.3):
    first, second = prediction.probabilities[:2]
    return first - second < least


MORE = ("limit 5", "all paths fork", "light paths do not fork")


class EverySecond(Seeded):
    """Follows the drawn token; every second step forks into the two most likely tokens."""

    def branch(self, leaves, predictions, step):
        choices = [[(token, 1.0)] for token in predictions.drawn]
        if step % 2:
            choices = [[(token, 0.5) for token in tokens[:2]] for tokens in predictions.top_tokens]
        return children_of(leaves, predictions, choices, predictions.drawn)

    def prune(self, population, step):
        return [member.weight for member in population]


@pytest.mark.parametrize(
    ("case", "seeds"),
    [
        *((name, range(300)) for name in ("limit 3", "filtered")),
        *(pytest.param(name, range(1000, 1500), marks=pytest.mark.slow) for name in MORE),
    ],
)
def test_weighted_averages_of_a_margin_rule_are_unbiased(case, seeds):
    case = CASES[case]
    runs = (samples_of(case.model, case.config("fair", seed), margin)[0] for seed in seeds)
    estimates = [weighted([(text, leaf.weight) for text, leaf in samples]) for samples in runs]
    assert_unbiased(estimates, weighted(case.texts()))


def test_the_rule_of_fair_given_in_python_gives_the_run_of_fair():
    settings = SHORT | {"entropy_threshold": 1.5, "min_fork_weight": 0.05}
    explorer = neutral_explorer(MODEL, **settings)
    for seed in range(5):
        fair = explorer.run("0", seed=seed)
        same = explorer.run("0", seed=seed, policy=lambda next_token, _: next_token.entropy >= 1.5)
        assert same.samples == fair.samples
        assert len(fair.samples) > 1


def test_a_rule_sees_neither_the_drawn_token_nor_its_random_number():
    seen = []

    def rule(prediction, leaf):
        seen.append((prediction, leaf))
        return leaf.log_prob > -3 and leaf.path >= 0 and prediction.step != 1

    run = neutral_explorer(MODEL, **SHORT).run("0", policy=rule)
    born = {path.born for path in run.paths}
    assert {0, 2} <= born
    assert 1 not in born
    order = np.argsort(-MODEL.next(0, 0))[:8]
    probabilities = pytest.approx(tuple(MODEL.next(0, 0)[order]))
    first, root = seen[0]
    assert asdict(root) == {"path": 0, "weight": 1.0, "log_prob": 0.0}
    assert asdict(first) == {
        "step": 0,
        "entropy": run.paths[0].fork_entropy,
        "tokens": tuple(order.tolist()),
        "probabilities": probabilities,
    }


def test_drafts_and_other_runs_in_the_pass_change_nothing(twins):
    model = twins("llama").ours
    explorer = neutral_explorer(model, max_paths=4, max_new_tokens=12, policy=margin)
    alone = explorer.run("w5 w6 w5")
    assert len(alone.samples) > 1
    drafted = explorer.run("w5 w6 w5", drafter="prompt-lookup")
    assert [one.token_ids for one in drafted.samples] == [one.token_ids for one in alone.samples]
    config = BranchingConfig(max_paths=4, max_new_tokens=12)
    requests = [
        Request("w5 w6 w5", config, policy=margin),
        Request("w7", BranchingConfig(max_new_tokens=5, branch_factor=12)),
    ]
    first, _ = [eab.Run(handle) for handle in eab.serve(model, requests)]
    assert first.started.config == alone.started.config
    assert_same_decisions(first, alone)


def made_for(config, threshold_nats):
    assert (config.max_new_tokens, threshold_nats) == (6, 0.65)
    return EverySecond(config)


@pytest.mark.parametrize(
    ("given", "name", "drafter"),
    [
        (EverySecond, "EverySecond", "none"),
        (made_for, "made_for", "sibling-lookup"),
        (EverySecond(BranchingConfig()), "EverySecond", "none"),
    ],
)
def test_a_whole_policy_may_be_a_class_a_function_or_an_object(given, name, drafter):
    explorer = neutral_explorer(MODEL, **SHORT | {"drafter": drafter})
    run = explorer.run("0", policy=given)
    assert run.started.config.policy == f"own:{name}"
    assert sum(sample.weight for sample in run.samples) == pytest.approx(1)
    forks = {path.born for path in run.paths if path.parent >= 0}
    assert forks
    assert all(step % 2 for step in forks)


def test_a_run_with_an_own_policy_can_be_saved_and_shown_but_not_resimulated(tmp_path):
    explorer = neutral_explorer(MODEL, **SHORT, policy=margin)
    made = explorer.run("0")
    some = (partial(margin, least=0.9), "margin"), (FairPolicy, "FairPolicy")
    for policy, name in some:
        assert explorer.run("0", policy=policy).started.config.policy == f"own:{name}"
    made.save(tmp_path / "own.eab")
    run = eab.load(tmp_path / "own.eab")
    assert run.events == made.events
    assert board_message(run)["policy"] == "own:margin"
    assert "own:margin" in data_of(run.to_html())["about"]
    assert "the policy own:margin, saw" in takeaway_sentence(run, made)
    assert as_python(run.started).startswith("# The run used the policy own:margin: add")
    for asked in ({"threshold": 1.2}, {"r": 1}):
        with pytest.raises(
            ConfigError, match="the run used the policy own:margin, which was given in Python"
        ):
            run.what_if(**asked)
    never = explorer.run("0", policy=lambda prediction, leaf: False)
    assert tree_sentence(fold(never.events)).startswith("No fork: the policy own:lambda made none.")


def test_a_recorded_policy_name_alone_cannot_start_a_run():
    config = BranchingConfig(policy="own:margin")
    with pytest.raises(
        ConfigError, match=r"own:margin, which was given in Python.*in Python, as policy="
    ):
        neutral_explorer(MODEL, policy="own:margin").run("0")
    with pytest.raises(ConfigError, match="own:margin, which was given in Python"):
        check_request(MODEL, Request("0", config))
    asked = eab_here("run", "Once upon a time", "--policy", "own:margin")
    assert asked.returncode != 0
    assert "own:margin, which was given in Python" in " ".join(asked.stderr.split())
    assert Request("0", config, policy=EverySecond).config.policy == "own:EverySecond"
