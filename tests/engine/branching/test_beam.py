"""The `beam` policy finds the texts of beam search in transformers, with the same scores. The policy
`stochastic-beam` draws without replacement; how its estimates behave.
"""

import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from equality import assert_same_decisions
from estimates import CASES_AND_SEEDS, FUNCTIONALS, assert_unbiased, weighted
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of
from numpy.typing import NDArray
from stepping import Sample, Text, leaves_of
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from eab import EntropyAdaptiveBranching
from eab.config import BranchingConfig
from eab.engine.branching.beam import StochasticBeamPolicy, importance
from eab.engine.branching.policy import Leaf
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.engine.what_if.resimulate import resimulate
from eab.lessons.checks.policy import Table, TableModel, random_table
from eab.run import RunState, fold, record
from eab.run.events import Pruned

LENGTH = 6
BASE = BranchingConfig(policy="beam", max_new_tokens=LENGTH)
Texts = list[tuple[int, ...]]


class Chain(PreTrainedModel, GenerationMixin):
    """A table of log-probabilities, (T, V, V), as a model of transformers."""

    config_class = PreTrainedConfig
    main_input_name = "input_ids"

    def __init__(self, table: Table) -> None:
        super().__init__(PreTrainedConfig(vocab_size=table.shape[-1]))
        self.dummy = torch.nn.Parameter(torch.zeros(1))
        self.logits = torch.from_numpy(np.log(table))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> CausalLMOutputWithPast:
        return CausalLMOutputWithPast(
            logits=self.logits[input_ids.shape[1] - 1, input_ids[:, -1]][:, None]
        )


def reference(model: Any, prompt: list[int], beams: int, stops: list[int], **asked: Any) -> Any:
    """The texts and scores of `generate`."""
    out = model.generate(
        torch.tensor([prompt]),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        eos_token_id=stops or None,
        pad_token_id=stops[0] if stops else 0,
        return_dict_in_generate=True,
        output_scores=True,
        **asked,
    )
    texts = []
    for row in out.sequences[:, len(prompt) :].tolist():
        end = next((at for at, token in enumerate(row, 1) if token in stops), len(row))
        texts.append(tuple(row[:end]))
    return texts, out.get("sequences_scores")


def assert_same(run: RunState, expected: Any, penalty: float) -> None:
    texts, scores = expected
    assert [sample.token_ids for sample in run.samples] == texts
    for sample in run.samples:
        assert sample.weight == pytest.approx(math.exp(sample.log_prob))
    if scores is not None:  # with one beam, transformers decodes greedily
        found = [sample.beam_score(penalty) for sample in run.samples]
        assert found == pytest.approx(scores.tolist(), abs=2e-5)  # it adds in float32


RULES = [*product([-1.0, 0.0, 0.7, 1.0, 2.0], [False, True, "never"])]


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(10, 14),
    concentration=st.sampled_from([0.3, 1.0, 5.0]),
    beams=st.integers(1, 8),
    stops=st.sets(st.integers(0, 9), max_size=2),
    rules=st.sampled_from(RULES),
)
def test_texts_and_scores_are_those_of_transformers_on_random_chains(
    chain, size, concentration, beams, stops, rules
):
    penalty, early = rules
    table, stops = random_table(chain, size, concentration, LENGTH), sorted(stops)
    asked = {"length_penalty": penalty, "early_stopping": early}
    run = fold(events_of(TableModel(table, stops), "0", BASE, max_paths=beams, **asked))
    asked |= {"max_new_tokens": LENGTH, "use_cache": False}
    assert_same(run, reference(Chain(table), [0], beams, stops, **asked), penalty)


def test_a_text_that_a_stop_string_ends_takes_no_place_among_the_beams(table):
    run = fold(events_of(TableModel(table), "0", BASE, max_paths=3, stop=(" 1",)))
    ended = fold(events_of(TableModel(table, [1]), "0", BASE, max_paths=3))
    assert [one.token_ids for one in run.samples] == [one.token_ids for one in ended.samples]
    assert any(path.cut for path in run.paths)


@pytest.fixture(scope="module")
def table() -> Table:
    return random_table(3, 5, 1.0, LENGTH)


def test_what_if_and_a_file_give_the_same_run(table):
    events = events_of(TableModel(table, [1]), "0", BASE, max_paths=4)
    assert any(isinstance(event, Pruned) for event in events)
    assert list(record.loads(record.dumps(events))) == events
    for threshold in (0.1, 1.5):
        found = resimulate(events, threshold)
        assert not found.unknowns, "the threshold has no effect"
        assert_same_decisions(fold(found.events), fold(events))


def test_texts_and_scores_of_the_embedded_model_are_those_of_transformers():
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float64).eval()
    pair = (model, AutoTokenizer.from_pretrained(EMBEDDED_FOLDER))
    rules = {"length_penalty": 0.7, "early_stopping": "never", "max_new_tokens": 16}
    explorer = EntropyAdaptiveBranching(pair, policy="beam", max_paths=6, temperature=1, top_p=1)
    run = explorer.run("Grandma went to the market and bought some", **rules)
    stops = sorted(explorer.model.stop_ids)
    expected = reference(model, [*run.started.prompt_tokens], 6, stops, **rules)
    assert_same(run, expected, 0.7)


DRAWN_LENGTH = 3
RUNS, FEW, MANY = 600, 2, 12
MODEL = TableModel(random_table(7, 4, 3.0), stop_ids=[3])
EXACT = dict(MODEL.all_texts(0, DRAWN_LENGTH))


def drawn(count: int, seed: int, model: TableModel = MODEL) -> tuple[dict[Text, Leaf], float]:
    """The leaves of one run, and kappa."""
    config = BranchingConfig(
        policy="stochastic-beam", max_paths=count, seed=seed, max_new_tokens=DRAWN_LENGTH
    )
    leaves, policy = leaves_of(model, config)
    assert isinstance(policy, StochasticBeamPolicy)
    return leaves, policy.kappa


def of_run(samples: list[Sample], kappa: float) -> list[float]:
    """The statistics of one run: kappa, and for each functional the number of texts with that
    property, this number times kappa, and the estimate with the run's weights.
    """
    counts = weighted([(text, 1.0) for text, _ in samples])
    means = weighted([(text, leaf.weight) for text, leaf in samples])
    return [kappa, *counts, *(kappa * count for count in counts), *means]


def gumbel_top(texts: list[tuple[Text, float]], count: int, runs: int) -> NDArray[np.float64]:
    """The same statistics for runs that perturb the log-probabilities of all texts at once."""
    p = np.array([mass for _, mass in texts])
    values = np.array([[f(text) for text, _ in texts] for f in FUNCTIONALS.values()])
    rng = np.random.default_rng(count)
    found = []
    for _ in range(runs):
        perturbed = np.log(p) + rng.gumbel(size=len(p))
        order = np.argpartition(-perturbed, count)
        kept, kappa = order[:count], perturbed[order[count]]
        weights = p[kept] / -np.expm1(-p[kept] * np.exp(-kappa))
        counts = values[:, kept].sum(axis=1)
        means = values[:, kept] @ (weights / weights.sum())
        found.append(np.concatenate([[kappa], counts, kappa * counts, means]))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "seeds"), CASES_AND_SEEDS)
def test_importance_weights_are_unbiased_and_statistics_match_gumbel_top_k(case, seeds) -> None:
    estimates, found = [], []
    for samples, policy in case.runs("stochastic-beam", seeds):
        kappa = policy.kappa
        logs = [(text, importance(leaf.log_prob, kappa)) for text, leaf in samples]
        estimates.append(weighted([(text, math.exp(log)) for text, log in logs]))
        found.append(of_run(samples, kappa))
    texts = case.texts()
    assert_unbiased(estimates, weighted(texts))
    if case.max_paths >= len(texts):
        assert {kappa for kappa, *_ in found} == {-math.inf}, "nothing was dropped"
        return
    expected = gumbel_top(texts, case.max_paths, 20_000)
    assert_unbiased(found, expected.mean(axis=0), expected.std(axis=0) / math.sqrt(20_000))


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 7),
    concentration=st.sampled_from([0.1, 0.6, 3.0]),
    count=st.integers(1, 20),
    stops=st.sets(st.integers(0, 6), max_size=2),
    seed=st.integers(0, 2**63 - 1),
)
def test_texts_are_distinct_and_as_many_as_possible_and_weights_sum_to_one(
    chain, size, concentration, count, stops, seed
):
    model = TableModel(random_table(chain, size, concentration), sorted(stops))
    leaves, kappa = drawn(count, seed, model)
    exact = {text: mass for text, mass in model.all_texts(0, DRAWN_LENGTH) if mass > 0}
    assert len(leaves) == min(count, len(exact))
    assert (kappa == -math.inf) == (len(exact) <= count)
    assert math.fsum(leaf.weight for leaf in leaves.values()) == pytest.approx(1, abs=1e-9)
    for text, leaf in leaves.items():
        assert leaf.log_prob == pytest.approx(math.log(exact[text]), abs=1e-9)
        if len(exact) <= count:
            assert leaf.weight == pytest.approx(exact[text], abs=1e-9)


@pytest.mark.slow
def test_the_bias_of_normalised_weights_shrinks_as_more_texts_are_drawn() -> None:
    def bias(count: int) -> float:
        totals = Counter[Text]()
        for seed in range(RUNS):
            for text, leaf in drawn(count, seed)[0].items():
                totals[text] += leaf.weight / RUNS
        return sum(abs(totals[text] - mass) for text, mass in EXACT.items())

    assert bias(FEW) > 2 * bias(MANY)


def test_importance_weights_of_likely_and_unlikely_texts() -> None:
    for p, kappa in ((0.5, -1.0), (1e-3, 0.0), (0.9, -8.0)):
        exact = p / (1 - math.exp(-p * math.exp(-kappa)))
        assert importance(math.log(p), kappa) == pytest.approx(math.log(exact), abs=1e-9)
    assert importance(-0.1, -math.inf) == -0.1, "nothing was dropped: it is its probability"
    assert importance(-2000.0, -3.0) == pytest.approx(-3.0), "p / q tends to exp(kappa)"
    assert importance(-1.0, -5000.0) == -1.0
    leaves, _ = drawn(4, 1, TableModel(np.array([[1 - 1e-13, 1e-13], [0.5, 0.5]])))
    weights = [leaf.weight for leaf in leaves.values()]
    assert (len(weights), min(weights) > 0, max(weights) > 1 - 1e-9) == (4, True, True)


def test_more_paths_with_the_same_seed_extend_the_same_sample() -> None:
    """Random numbers depend on path and step alone, so a larger sample contains a smaller one."""
    for seed in range(30):
        few, many = (set(drawn(count, seed)[0]) for count in (3, 7))
        assert few <= many
