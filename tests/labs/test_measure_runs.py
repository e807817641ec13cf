"""The three ways to serve, with the engine: the same tokens, and the slots that each way uses."""

from dataclasses import replace

import pytest
from made_runs import run_of

from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.errors import PromptError
from eab.labs.batching import (
    WAYS,
    ServingRequest,
    Workload,
    agreement_sentence,
    schedules,
    shown,
)
from eab.labs.measure_runs import compare_ways
from eab.labs.measurement import Report

STORY = "The sun was hot, so the children"
LENGTHS = (4, 20, 5, 6, 20)
WORKLOAD = Workload(tuple(ServingRequest(STORY, length) for length in LENGTHS), slots=2, repeats=1)


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return load_model("embedded", dtype="float64")


def compared(model: HuggingFaceModel, workload: Workload) -> Report:
    return Report().collect(compare_ways(model, workload, "here"))


@pytest.fixture(scope="module")
def found(model: HuggingFaceModel) -> Report:
    return compared(model, WORKLOAD)


def test_every_way_gives_each_request_the_tokens_that_it_gets_alone(
    model: HuggingFaceModel, found: Report
) -> None:
    assert found.complete
    assert agreement_sentence(found).startswith("All ways wrote the same")
    for number, run in enumerate(found.runs.values()):
        asked = WORKLOAD.requests[number]
        alone = run_of(model, asked.prompt, WORKLOAD.config(asked))
        assert [one.id for one in run.tokens(0)] == [one.id for one in alone.tokens(0)]
        assert run.ended == alone.ended
    written = sum(LENGTHS)
    assert {one.new_tokens for one in shown(found).values()} == {written}


def test_static_batches_wait_for_the_longest_request_and_continuous_do_not(
    found: Report,
) -> None:
    assert len(shown(found)["one by one"].passes) == sum(LENGTHS)
    static = shown(found)["static batches"]
    assert len(static.passes) == 20 + 6 + 20
    begun = {run: parts[0][0] for run, parts in static.by_run.items()}
    assert begun == {0: 0, 1: 0, 2: 20, 3: 20, 4: 26}
    assert static.awaited_idle_share == pytest.approx((16 + 1) / (2 * 46))
    continuous = shown(found)["continuous"]
    assert continuous.awaited_idle_share == 0
    assert {run: parts[0][0] for run, parts in continuous.by_run.items()} == {
        0: 0, 1: 0, 2: 4, 3: 9, 4: 15,
    }  # fmt: skip
    assert len(continuous.passes) == 15 + 20


def test_the_kv_bytes_of_passes_are_those_that_runs_measured(found: Report) -> None:
    single, runs = shown(found)["one by one"], [*found.runs.values()]
    for run, parts in single.by_run.items():
        measured = [step.kv.bytes_held for step in runs[run].steps if step.kv is not None]
        assert [single.passes[number].kv_bytes for number, _ in parts] == measured


def test_repeats_alternate(model: HuggingFaceModel) -> None:
    few = tuple(ServingRequest(STORY, length) for length in (2, 4, 3))
    found = compared(model, replace(WORKLOAD, requests=few, repeats=2))
    assert [row["way"] for row in found.rows("servings")] == [*WAYS, WAYS[1], WAYS[2], WAYS[0]]
    first, second = schedules(found)["continuous"]
    assert [one.served for one in first.passes] == [one.served for one in second.passes]


def test_requests_with_several_paths_fork(model: HuggingFaceModel) -> None:
    few = tuple(ServingRequest(STORY, length) for length in (4, 8, 6))
    found = compared(model, replace(WORKLOAD, requests=few, max_paths=4))
    assert agreement_sentence(found).startswith("All ways wrote the same")
    assert any(len(run.leaves()) > 1 for run in found.runs.values())
    tokens = sum(len(path.tokens) for run in found.runs.values() for path in run.paths)
    assert shown(found)["continuous"].new_tokens == tokens


def test_a_prompt_that_is_too_long_ends_the_comparison(model: HuggingFaceModel) -> None:
    long = replace(
        WORKLOAD, requests=(ServingRequest(STORY, 4), ServingRequest("and on " * 280, 256))
    )
    with pytest.raises(PromptError):
        compared(model, long)
