"""The `beam` policy finds the texts of beam search in transformers, with the same scores."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from equality import assert_same_decisions
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of
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
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.engine.what_if.resimulate import resimulate
from eab.lessons.checks.policy import Table, TableModel, random_table
from eab.run import RunState, fold, record
from eab.run.events import Forked, Pruned

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


# After 0: 1 (0.6), or the end, 2 (0.4). After 1: 0 (0.7), 1 (0.2), 2 (0.1).
SMALL = TableModel(np.array([[0.0, 0.6, 0.4], [0.7, 0.2, 0.1], [0.0, 0.0, 1.0]]), [2])


@pytest.mark.parametrize(
    ("penalty", "texts"),
    [
        # By probability, the short text (0.4) is the best and the one of 0.168 is dropped; per
        # token, the short one is the worst.
        (0.0, {(2,): 0.4, (1, 0, 1): 0.252}),
        (1.0, {(1, 0, 1): 0.252, (1, 0, 2): 0.168}),
    ],
)
def test_a_small_search_matches_the_one_worked_out_by_hand(penalty, texts):
    events = events_of(SMALL, "0", BASE, max_paths=2, max_new_tokens=3, length_penalty=penalty)
    run = fold(events)
    weights = [sample.weight for sample in run.samples]
    assert [sample.token_ids for sample in run.samples] == [*texts]
    assert weights == pytest.approx([*texts.values()])
    # Step 0: (1) lives, (2) ends. Step 1: (1, 0) and (1, 1) live. Step 2: (1, 1, 0), 0.084, is the
    # third best, so its path is dropped.
    forks = [event.step for event in events if isinstance(event, Forked)]
    assert forks == ([0, 1] if penalty == 0 else [0, 1, 2])
    assert dropped(run) == ([[1, 1]] if penalty == 0 else [[2], [1, 1]])


def dropped(run: RunState) -> list[list[int]]:
    """The texts of the dropped paths."""
    paths = [path.id for path in run.paths if path.status == "pruned"]
    return [[token.id for token in run.tokens(path)] for path in paths]


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
