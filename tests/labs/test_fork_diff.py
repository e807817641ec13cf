"""What changed between two runs: worked out by hand, and for a real model in fewer bits."""

import pytest
from made_runs import bundled_run, run_of
from msgspec import structs

from eab.config import BranchingConfig
from eab.labs.quantization import (
    ForkChange,
    Moved,
    moved,
    moved_rows,
    moved_sentence,
    same_request,
)
from eab.lessons import bundled_runs
from eab.models.loading import load_model
from eab.run import RunState

PROMPT = "Grandma went to the market and bought some"


def story(weights: str, **settings: object) -> RunState:
    model = load_model(weights=weights)
    return run_of(model, PROMPT, max_new_tokens=8, max_paths=8, **settings)


def texts(run: RunState) -> dict[tuple[int, ...], float]:
    return {sample.token_ids: sample.weight for sample in run.samples}


def test_a_run_compared_with_itself_has_no_changes():
    run = bundled_run("bridge")
    found = moved(run, run)
    assert found.first is None
    assert found.appeared == found.vanished == ()
    assert found.weight == 0
    assert not same_request(run, run)  # the same weights


def test_forks_that_vanish_at_another_threshold_are_listed_with_their_entropy():
    fine, coarse = (story("as-loaded", entropy_threshold=one) for one in (0.3, 1.2))
    found = moved(fine, coarse)
    forked, kept = (sum(path.status == "forked" for path in run.paths) for run in (fine, coarse))
    assert len(found.vanished) - len(found.appeared) == forked - kept
    assert found.vanished
    for change in found.vanished:
        assert change.a >= 0.3
    swapped = moved(coarse, fine)
    assert [(one.text, one.b, one.a) for one in swapped.appeared] == [
        (one.text, one.a, one.b) for one in found.vanished
    ]


def test_first_token_and_weight_agree_with_the_texts():
    a, b = story("as-loaded"), story("nf4")
    assert same_request(a, b)
    found, ours, theirs = moved(a, b), texts(a), texts(b)
    common = sum(min(ours.get(one, 0), theirs.get(one, 0)) for one in ours)
    assert found.weight == pytest.approx(1 - common)
    assert found.first is not None or ours.keys() == theirs.keys()
    b.started = structs.replace(b.started, config=BranchingConfig(max_new_tokens=9))
    assert not same_request(a, b)


def test_the_recorded_run_in_four_bits_repeats_the_first_recording():
    b = bundled_runs.quantized().run
    assert b.started.model.weights == "int4"
    assert same_request(bundled_run("bridge"), b)


def test_the_sentence_counts_what_appeared_and_vanished():
    moved = Moved(7, (ForkChange(" a", 0.6, 0.7),), (ForkChange("", 0.9, None),) * 2, 0.25)
    words = moved_sentence(moved, "int4")
    for part in ("With int4, ", "from token 7 on", "2 forks of A", "1 fork of B", "25.0%"):
        assert part in words
    vanishes = ("the prompt", "vanishes", "0.9000 nats", "no such text")
    assert moved_rows(moved) == [vanishes] * 2 + [(" a", "appears", "0.6000 nats", "0.7000 nats")]


def test_the_sentence_says_if_all_tokens_are_the_same():
    words = moved_sentence(Moved(None, (), (), 0.001), "int8")
    assert "the same tokens and the same forks; 0.1% of the weight moves" in words
