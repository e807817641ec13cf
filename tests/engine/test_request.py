"""Continuing a run from one of its tokens: exact token ids, equal predictions, clear errors. And the
greedy probe from which a run has its threshold, with the presets that use it.
"""

import gzip
import json
from dataclasses import asdict
from statistics import median

import numpy as np
import pytest
from made_runs import events_of, run_of
from policies import BY_STEP

from eab.api.branching import EntropyAdaptiveBranching
from eab.config import BranchingConfig
from eab.engine.branching.presets import PRESETS, starting_config
from eab.engine.build import PROBED
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request, continue_from
from eab.errors import ModelError, PromptError, RecordError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold, record
from eab.run.events import Event, Predicted, Probed, RunEnded, RunStarted
from eab.run.threshold import PROBE_FLOOR, PROBE_STEPS, longer, threshold_in_nats
from eab.share.exports import as_python

CONFIG = BranchingConfig(entropy_threshold=1.5, max_paths=8, max_new_tokens=10)


@pytest.fixture(scope="module")
def run(twins) -> RunState:
    """A run that forks at its first step, so its first path has no token."""
    return run_of(twins("llama").ours, "w5 w9 w3", CONFIG)


@pytest.fixture(scope="module")
def model(twins) -> HuggingFaceModel:
    return twins("llama").ours


def grown_from(model: HuggingFaceModel, run: RunState, taken: tuple[int, ...]) -> list[Event]:
    """The events of the run that continues after these tokens."""
    return list(event_stream(model, continue_from(model, run.started, taken, CONFIG)))


def test_a_continued_run_predicts_what_the_first_run_predicted_next(run, model):
    places = [(path.id, index) for path in run.paths for index in range(len(path.tokens) - 1)]
    assert len(places) > 15
    for path, index in places[::3]:
        events = grown_from(model, run, run.continuation(path, run.tokens_before(path) + index))
        [found] = next(event for event in events if isinstance(event, Predicted)).predictions
        expected = run.paths[path].tokens[index + 1]
        assert found.entropy == pytest.approx(expected.entropy, abs=1e-9)
        assert [c.token for c in found.candidates] == [c.token for c in expected.candidates]


def test_the_ids_include_those_of_the_run_that_was_continued(run, model):
    leaf = max(run.leaves(), key=lambda path: len(run.lineage(path.id)))
    assert len(run.lineage(leaf.id)) > 1
    taken = run.continuation(leaf.id, run.tokens_before(leaf.id) + 1, candidate=2)
    own = run.sample(leaf.id).token_ids
    before = len(own) - len(leaf.tokens)
    assert taken == (*own[: before + 1], leaf.tokens[1].candidates[2].token)
    grown = fold(grown_from(model, run, taken))
    assert grown.started.prompt_tokens == run.started.prompt_tokens + taken
    assert grown.started.continued == len(taken)
    assert grown.started.beginning == "w5 w9 w3" + "".join(map(model.text, taken))
    first = next(path for path in grown.paths if path.tokens)
    again = grown.continuation(first.id, grown.tokens_before(first.id))
    assert again == (*taken, first.tokens[0].id)
    twice = fold(grown_from(model, grown, again))
    assert twice.started.prompt_tokens == run.started.prompt_tokens + again


def test_the_shown_python_code_repeats_a_continued_run(run, model):
    child = run.paths[0].children[0]
    grown = fold(grown_from(model, run, run.continuation(child, len(run.paths[0].tokens), 1)))
    code = as_python(grown.started)
    [argument] = [line.split("continued=")[1] for line in code.splitlines() if "continued=" in line]
    ids = tuple(int(part) for part in argument.strip("():").split(",") if part.strip())
    settings = asdict(grown.started.config)
    eab = EntropyAdaptiveBranching(model, **settings)
    assert eab.run("w5 w9 w3", continued=ids).samples == grown.samples


def test_no_run_continues_after_a_stop_token_from_a_missing_token_or_in_another_model(run, twins):
    table = TableModel(random_table(2, 5), stop_ids=[4])
    with pytest.raises(PromptError, match="ends the text"):
        next(event_stream(table, Request("0", CONFIG, (1, 4))))
    for place in ((99, 0), (-1, 0), (0, 99), (0, 0, 99)):
        with pytest.raises(PromptError):
            run.continuation(*place)
    with pytest.raises(PromptError, match="no token"):
        RunState(run.started).continuation(0, 0)
    with pytest.raises(ModelError, match="Choose the model that made the run"):
        grown_from(twins("gpt2").ours, run, (5,))


def test_a_file_without_the_new_field_loads_and_one_with_a_wrong_value_is_refused(run, model):
    events = grown_from(model, run, (5,))
    assert record.loads(record.dumps(events)) == events
    header, started, *rest = gzip.decompress(record.dumps(events)).decode().split("\n")
    fields = json.loads(started)
    del fields["continued"]

    def loaded() -> list[Event]:
        return record.loads(gzip.compress("\n".join([header, json.dumps(fields), *rest]).encode()))

    assert fold(loaded()).started.continued == 0
    fields["continued"] = len(fields["prompt_tokens"]) + 1
    with pytest.raises(RecordError, match="continued"):
        loaded()


NATS, RANK = {"entropy_threshold": 1.5}, {"entropy_threshold": 2, "threshold_unit": "rank"}


@pytest.mark.parametrize(
    ("policy", "threshold", "new_tokens"),
    [*((policy, NATS, 6) for policy in BY_STEP), ("fair", RANK, 24), ("original", RANK, 6)],
)
def test_a_longer_run_is_the_same_tree_up_to_the_old_limit(model, policy, threshold, new_tokens):
    config = BranchingConfig(
        policy=policy, max_paths=5, max_new_tokens=new_tokens, seed=3, **threshold
    )
    short = run_of(model, "w5 w9 w3", config)
    assert short.was_cut
    long = run_of(model, "w5 w9 w3", longer(short.started))
    assert long.started.config.max_new_tokens == 2 * new_tokens
    assert len(long.steps) > new_tokens
    before = fold(
        event
        for event in long.events
        if not isinstance(event, RunEnded) and getattr(event, "step", 0) < new_tokens
    )

    def texts(run: RunState) -> list[tuple[tuple[int, ...], float]]:
        return [(tuple(t.id for t in run.tokens(leaf.id)), leaf.weight) for leaf in run.leaves()]

    assert texts(before) == texts(short)


PROMPTS = [
    "The king asked the old wizard what",
    "My best friend is",
    "Yesterday I went to school and",
    "The dragon was angry because",
    "In the morning the baker",
    "Two birds sat on a wall.",
]
SEEDS = range(3)


def probed(**settings: object) -> BranchingConfig:
    return starting_config(**{"max_new_tokens": 64} | settings)


def test_a_prompt_is_probed_once_for_each_sampling_with_the_same_events(embedded):
    PROBED.pop(embedded, None)
    asked = [probed(seed=0), probed(seed=1, max_paths=3), probed(temperature=1.0)]
    probes = []
    for one in asked:
        events = events_of(embedded, "My best friend is", one)
        begun = next(i for i, event in enumerate(events) if isinstance(event, RunStarted))
        probes.append(events[:begun])
        assert all(isinstance(event, Probed) for event in events[:begun])
    assert len(probes[0]) == PROBE_STEPS
    assert probes[0] == probes[1] != probes[2]
    assert len(PROBED[embedded]) == 2


@pytest.mark.parametrize(
    ("rank", "probe", "nats"),
    [
        (1, [3.0, 1.0], 3.0),
        (1.5, [3.0, 1.0], 2.0),
        (2, [3.0, 1.0], 1.0),
        (9, [3.0, 1.0], 1.0),  # there are fewer
        (1, [1.0, 4.0, 2.0], 1.0),  # not above the first uncertain word
        (1, [0.2, 4.0, 2.0], 4.0),  # the model is sure of the first word
        (3, [2.0, 1.5, 0.2], 1.5),
        (1, [0.0] * 4, PROBE_FLOOR),
        (1, [], PROBE_FLOOR),
    ],
)
def test_a_rank_is_an_entropy_of_the_greedy_text(rank, probe, nats) -> None:
    probed = BranchingConfig(threshold_unit="rank", entropy_threshold=rank)
    assert threshold_in_nats(probed, 100, probe) == pytest.approx(nats, rel=2e-3)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("row", "stop_ids", "steps"),
    [
        ([1.0, 0.0, 0.0], [], 24),  # all entropies 0
        ([1 / 3] * 3, [], 24),  # all the same, ln 3
        ([0.0, 0.2, 0.8], [2], 1),  # the answer is empty
    ],
)
def test_presets_give_a_run_even_where_the_probe_tells_little(preset, row, stop_ids, steps):
    model = TableModel(np.array([row] * 3), stop_ids)
    asked = starting_config(preset=preset, temperature=1.0, top_p=1.0, max_new_tokens=24)
    run = run_of(model, "0", asked)
    assert len(run.probe) == steps
    assert run.ended.reason == "finished"
    assert 1 <= len(run.samples) <= asked.max_paths
    assert run.started.threshold_nats == pytest.approx(max(PROBE_FLOOR, run.probe[0]), rel=2e-3)


def limited_early(run: RunState) -> bool:
    """Whether the path limit acts in the first third of the steps."""
    acted = [step for path in run.paths for step in path.limited_steps]
    return bool(acted) and min(acted) < len(run.steps) / 3


@pytest.mark.slow
def test_the_balanced_preset_gives_about_eight_texts(embedded: HuggingFaceModel) -> None:
    runs = [
        run_of(embedded, prompt, probed(seed=seed, max_new_tokens=48))
        for prompt in PROMPTS
        for seed in SEEDS
    ]
    assert 6 <= median(len(run.samples) for run in runs) <= 10
    assert all(len(run.samples) > 1 for run in runs)
    assert sum(map(limited_early, runs)) <= len(runs) / 5
