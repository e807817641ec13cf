"""Continuing a run from one of its tokens: exact token ids, equal predictions, clear errors."""

import gzip
import json
from dataclasses import asdict

import pytest
from made_runs import events_of, leaves_at, run_of
from policies import BY_STEP, FORKING

from eab.api.branching import EntropyAdaptiveBranching
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request, continue_from
from eab.errors import ModelError, PromptError, RecordError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold, record
from eab.run.events import Event, PathFinished, Predicted, RunEnded, StepTimed
from eab.run.threshold import longer
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


@pytest.mark.parametrize("policy", [name for name in FORKING if name in BY_STEP])
def test_leaves_and_weights_at_any_step_are_those_of_the_run_at_that_step(twins, policy):
    settings = {"entropy_threshold": 1.0, "max_paths": 5, "branch_factor": 3, "seed": 2}
    config = BranchingConfig(max_new_tokens=14, policy=policy, **settings)
    events = events_of(twins("qwen2").ours, "w5 w9 w3", config)
    whole, growing = fold(events), RunState(events[0])
    assert "forked" in {path.status for path in whole.paths}
    if policy in ("fair", "stochastic-beam"):
        assert "pruned" in {path.status for path in whole.paths}
    for event in events[1:]:
        growing.apply(event)
        if isinstance(event, StepTimed):
            standing = leaves_at(whole, event.step)
            assert [path.id for path in standing] == [path.id for path in growing.leaves()]
            for path, then in zip(standing, growing.leaves(), strict=True):
                weights = [weight for step, weight in path.weights if step <= event.step]
                assert weights[-1] == then.weight
    assert any(isinstance(event, PathFinished) for event in events)


NATS, RANK = {"entropy_threshold": 1.5}, {"entropy_threshold": 2, "threshold_unit": "rank"}


@pytest.mark.parametrize(
    ("policy", "threshold", "new_tokens"),
    [
        *((policy, NATS, 6) for policy in BY_STEP),
        ("fair", RANK, 24),
        ("original", RANK, 6),
    ],
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
