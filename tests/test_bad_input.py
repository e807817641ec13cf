"""Bad prompts and limits give a clear error, or a tree that ends early."""

import math

import pytest
import torch
from made_runs import events_of, run_of

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.errors import ModelError, PromptError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold
from eab.run.events import RunEnded
from eab.settings import MAX_TEXT

MODEL = TableModel(random_table(1, 4))


def first_event(model, prompt: str, **settings: object) -> object:
    return next(event_stream(model, Request(prompt, BranchingConfig(**settings))))


def test_a_prompt_of_too_many_characters_is_refused_before_it_is_tokenised(monkeypatch):
    monkeypatch.setattr(MODEL, "encode", lambda *_: pytest.fail("it was tokenised"))
    with pytest.raises(PromptError, match="200,001 characters; at most 200,000 are allowed"):
        first_event(MODEL, "w" * (MAX_TEXT + 1))


def test_a_prompt_that_leaves_no_room_is_refused_with_the_numbers(twins):
    model = twins("llama").ours
    prompt = " ".join(["w5"] * 100)
    assert first_event(model, prompt, max_new_tokens=28)
    with pytest.raises(PromptError, match=r"100 tokens and max_new_tokens is 29, .* 128 tokens"):
        first_event(model, prompt, max_new_tokens=29)
    for seed in range(3):  # the whole context can be used
        run = run_of(model, prompt, max_new_tokens=28, entropy_threshold=20.0, seed=seed)
        assert run.samples[0].finish_reason in ("stop", "length"), seed


def test_a_prompt_without_any_token_is_refused(monkeypatch):
    monkeypatch.setattr(MODEL, "encode", lambda *_: ())
    with pytest.raises(PromptError, match="returns no tokens for this prompt"):
        first_event(MODEL, "?")


@pytest.mark.parametrize(
    "prompt",
    [
        "<script>alert(1)</script>",
        "\x00",
        "\u202eabc",
        "{{ 7 * 7 }}",
        "a" * 300,
        "🙂" * 50,
        "\ufffe",
        "%s%n",
    ],
)
def test_a_hostile_prompt_is_treated_as_plain_text(embedded, prompt):
    run = run_of(embedded, prompt, max_new_tokens=3, entropy_threshold=1.0, max_paths=4)
    assert run.started.prompt == prompt
    assert sum(sample.weight for sample in run.samples) == pytest.approx(1)


def test_a_run_that_outgrows_its_memory_fails_with_a_message_and_keeps_its_tree(twins):
    limit = {"max_paths": 40, "max_new_tokens": 100, "kv_limit_mib": 1}
    # 1,536 bytes a row: 682 rows.
    events = events_of(twins("llama").ours, "w5", entropy_threshold=0.0, **limit)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "failed"
    for words in ("kv_limit_mib allows 1", "a smaller r, or a higher kv_limit_mib"):
        assert words in events[-1].message
    run = fold(events)
    assert events[-1].step == len(run.steps) > 10
    assert sum(sample.weight for sample in run.samples) == pytest.approx(1)
    assert all(step.kv.bytes_held <= 2**20 for step in run.steps if step.kv is not None)


def test_a_prompt_that_does_not_fit_the_memory_fails_before_its_first_token():
    model = TableModel(random_table(2, 5), context=200_000)
    events = events_of(model, "1 " * 70_000, max_new_tokens=1, kv_limit_mib=1)
    assert [type(event).__name__ for event in events] == ["RunStarted", "RunEnded"]
    assert events[-1].reason == "failed"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_with_nan_or_infinite_logits_fails_with_an_explanation(monkeypatch, value):
    monkeypatch.setattr(MODEL, "_logits", torch.full((4, 4), value, dtype=torch.float64))
    with pytest.raises(ModelError, match="NaN or infinite logits at step 0; its weights may"):
        events_of(MODEL, "0")
