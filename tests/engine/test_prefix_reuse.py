"""Runs that find rows in the prefix cache decide as they do alone, and compute less."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from equality import PROMPT, decisions
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from neutral_explorer import neutral_explorer
from served_together import BASE, LONG, REQUESTS, alone, draft_for, same, serve_all, unweighted

import eab
from eab.board.messages import board_message
from eab.config import BranchingConfig
from eab.engine.caches.prefix_cache import PrefixCache, PrefixedTreeCache, Prefixes
from eab.engine.fairness import FirstComeFirstServed, NewcomersFirst
from eab.engine.handle import Handle
from eab.engine.loop import event_stream
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.engine.what_if.resimulate import resimulate
from eab.errors import MemoryLimitError
from eab.figures.captions import cost_sentence
from eab.figures.kv_memory import memory_words
from eab.run import RunState, fold
from eab.run.events import Event, KvMeasured, RunEnded, StepTimed

ROWS = ("rows_shared", "rows_private", "rows_independent", "paths")


def assert_decides_as(found: Sequence[Event], expected: Sequence[Event]) -> None:
    """Assert equal decisions and equal rows in use at every step, up to where a run was stopped."""
    pairs = [(decided(found), decided(expected)), (rows_in_use(found), rows_in_use(expected))]
    for own, wanted in pairs:
        whole = isinstance(found[-1], RunEnded)
        for one, other in zip(own, wanted if whole else wanted[: len(own)], strict=True):
            assert same(one, other), (one, other)


def decided(events: Sequence[Event]) -> list[Event]:
    return unweighted(decisions([*events]))


def rows_in_use(events: Sequence[Event]) -> list[list[Any]]:
    usages = [event.usage for event in events if isinstance(event, KvMeasured)]
    return [[getattr(usage, name) for name in ROWS] for usage in usages]


def tokens_computed(events: Sequence[Event]) -> int:
    return sum(event.tokens for event in events if isinstance(event, StepTimed))


def prefixes_of(model: Any, rows: int = 100_000) -> PrefixCache:
    return PrefixCache(model.kv_shape, rows * model.kv_shape.row_bytes)


def nothing_is_held(prefixes: PrefixCache) -> bool:
    return not any(segment.readers for segment in prefixes.segments())


@pytest.mark.slow
def test_any_order_of_submits_stops_and_evictions(twins):
    Reused.twins = staticmethod(twins)
    run_state_machine_as_test(Reused, settings=settings(max_examples=30, stateful_step_count=25))


@pytest.mark.parametrize("family", ["qwen2", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_every_kind_of_run_decides_the_same_with_and_without_the_prefix_cache(twins, family):
    """All requests run together, three times each: later runs find what the first ones leave."""
    model = twins(family).ours
    prefixes = prefixes_of(model)
    scheduler = Scheduler(model, token_budget=96, prefixes=prefixes)
    asked = [*REQUESTS.values()] * 3
    handles = [scheduler.submit(one, draft=draft_for(one, twins)) for one in asked]
    expected = [alone(model, one, draft_for(one, twins)) for one in REQUESTS.values()] * 3
    for events, own in zip(serve_all(scheduler, handles), expected, strict=True):
        assert_decides_as(events, own)
    assert prefixes.tokens_found > prefixes.tokens_asked / 3
    assert nothing_is_held(prefixes)


@pytest.mark.parametrize("attention", ["sliced", "padded"])
def test_a_prompt_is_computed_once(twins, attention):
    model = twins("llama").ours
    prefixes = prefixes_of(model)
    request = Request(LONG, replace(BASE, attention=attention))
    first, again = (list(event_stream(model, request, prefixes=prefixes)) for _ in range(2))
    assert_decides_as(again, first)
    prompt = len(first[0].prompt_tokens)
    assert tokens_computed(first) - tokens_computed(again) == prompt - 1
    usage = next(event.usage for event in again if isinstance(event, KvMeasured))
    assert usage.tokens_reused == prompt - 1
    assert usage.rows_reused == (prompt - 1 if attention == "sliced" else 0)
    what_ifs = [resimulate(events, 2.5).events for events in (first, again)]
    assert_decides_as(*what_ifs)


def test_runs_with_the_same_prompt_wait_for_the_first_one(twins):
    model = twins("llama").ours
    prefixes = prefixes_of(model)
    scheduler = Scheduler(model, prefixes=prefixes)
    asked = [Request(LONG, replace(BASE, seed=seed)) for seed in range(6)]
    served = serve_all(scheduler, [scheduler.submit(request) for request in asked])
    prompt = len(model.encode(LONG, BASE))
    first_pass = [next(e.tokens for e in events if isinstance(e, StepTimed)) for events in served]
    assert first_pass == [prompt, 1, 1, 1, 1, 1]
    for events, request in zip(served, asked, strict=True):
        assert_decides_as(events, alone(model, request))
    usage = next(event.usage for event in served[1] if isinstance(event, KvMeasured))
    assert usage.other_runs == 4
    assert_is_shown(model, *map(fold, served[:2]), others=4)
    scheduler = Scheduler(model, prefixes=prefixes_of(model))
    handles = [scheduler.submit(Request(LONG, BASE), scope=scope) for scope in "ab"]
    served = serve_all(scheduler, handles)
    assert tokens_computed(served[0]) == tokens_computed(served[1]), "scopes share nothing"


def assert_is_shown(model: Any, first: RunState, run: RunState, others: int) -> None:
    """The board and the sentences name the rows that other runs also read."""
    rows = len(run.started.prompt_tokens) - 1
    for each, reused in ((first, 0), (run, rows * model.kv_shape.row_bytes)):
        assert {step["reused"] for step in board_message(each)["steps"]} == {reused}
    words = memory_words(run, run.steps[1].kv)
    assert words.endswith(f"is in the prefix cache, read by {others} other runs, too.")
    assert "nothing to share" not in words
    assert f" {rows} tokens of the prompt were in the prefix cache" in cost_sentence(run)
    assert "before" not in cost_sentence(first)


def test_no_run_waits_for_rows_that_will_not_be_kept(twins):
    model = twins("llama").ours
    scheduler = Scheduler(model, prefixes=prefixes_of(model, rows=1))
    handles = [scheduler.submit(Request(LONG, replace(BASE, seed=seed))) for seed in range(3)]
    scheduler.step()
    assert all(handle.tokens for handle in handles)


@pytest.mark.parametrize("prompt", [PROMPT, LONG], ids=["short", "long"])
def test_continuing_a_path_computes_none_of_its_tokens(twins, prompt):
    """The path is of the second run, which reads a long prompt in place and keeps what it adds."""
    model = twins("qwen2").ours
    prefixes = prefixes_of(model)
    config = replace(BASE, max_new_tokens=40, entropy_threshold=3.5)
    for seed in (0, 1):
        request = Request(prompt, replace(config, seed=seed))
        events = list(event_stream(model, request, prefixes=prefixes))
    text = eab.Run(events).samples[0].token_ids[:-2]
    longer = Request(prompt, BASE, continued=tuple(text))
    grown = list(event_stream(model, longer, prefixes=prefixes))
    assert_decides_as(grown, alone(model, longer))
    usage = next(event.usage for event in grown if isinstance(event, KvMeasured))
    assert usage.tokens_reused == len(model.encode(prompt, BASE)) + len(text) - 1


@pytest.mark.parametrize("rule", [FirstComeFirstServed(), NewcomersFirst()], ids=["fcfs", "new"])
def test_preempted_runs_continue_after_the_prefix_they_hold(monkeypatch, twins, rule):
    monkeypatch.setattr("eab.engine.handle.SLICE", 16)
    model = twins("llama").ours
    prefixes = prefixes_of(model)
    asked = [Request(LONG, replace(BASE, seed=seed, max_new_tokens=40)) for seed in range(5)]
    list(event_stream(model, asked[0], prefixes=prefixes))
    scheduler = Scheduler(
        model, kv_limit_mib=500 * model.kv_shape.row_bytes / 2**20, rule=rule, prefixes=prefixes
    )
    handles = [scheduler.submit(request, owner=str(request.config.seed)) for request in asked]
    for events, request in zip(serve_all(scheduler, handles), asked, strict=True):
        assert fold(events).tokens_reused > 50
        assert_decides_as(events, alone(model, request))
    assert sum(handle.preemptions for handle in handles) > 0


@cache
def expected_alone(twins: Any, prompt: str, seed: int, policy: str) -> list[Event]:
    return alone(twins("llama").ours, request_of(prompt, seed, policy))


def request_of(prompt: str, seed: int, policy: str) -> Request:
    settings = {"seed": seed, "policy": policy, "max_new_tokens": 6, "entropy_threshold": 3.0}
    return Request(prompt, replace(BASE, **settings))


TEXTS = [" ".join(LONG.split()[:length]) for length in (1, 30, 45, 60)] + [PROMPT]


class Reused(RuleBasedStateMachine):
    """Random submits, stops, evictions and limits: each run decides as it does alone."""

    twins: Any = None

    @initialize(rows=st.sampled_from([0, 40, 100, 1000]), kv_rows=st.sampled_from([150, 10**6]))
    def begin(self, rows: int, kv_rows: int) -> None:
        self.model = self.twins("llama").ours
        self.prefixes = prefixes_of(self.model, rows)
        self.scheduler = Scheduler(
            self.model,
            max_running=4,
            token_budget=48,
            kv_limit_mib=kv_rows * self.model.kv_shape.row_bytes / 2**20,
            prefixes=self.prefixes,
        )
        self.runs: list[tuple[Handle, list[Event], list[Event]]] = []

    @rule(
        prompt=st.sampled_from(TEXTS),
        seed=st.integers(0, 2),
        policy=st.sampled_from(["fair", "independent"]),
        scope=st.sampled_from(["", "other"]),
    )
    def submit(self, prompt: str, seed: int, policy: str, scope: str) -> None:
        handle = self.scheduler.submit(request_of(prompt, seed, policy), scope=scope)
        self.runs.append((handle, [], expected_alone(self.twins, prompt, seed, policy)))

    @precondition(lambda self: self.scheduler.busy)
    @rule(steps=st.integers(1, 4))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.scheduler.step()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        handle, events, _ = data.draw(st.sampled_from(self.runs))
        if not handle.ended:
            handle.stop()
            self.scheduler.step()
            events += handle.new_events()
            assert events.pop().reason == "stopped"

    @rule(rows=st.integers(1, 100))
    def evict(self, rows: int) -> None:
        self.prefixes.evict(rows * self.model.kv_shape.row_bytes)

    @invariant()
    def bytes_and_readers_add_up(self) -> None:
        rows = sum(len(one.tokens) for one in self.prefixes.segments())
        assert self.prefixes.bytes_held == rows * self.model.kv_shape.row_bytes
        assert self.prefixes.bytes_held <= self.prefixes.byte_limit
        most = len(self.scheduler.running)
        assert all(0 <= one.readers <= most for one in self.prefixes.segments())

    def teardown(self) -> None:
        while self.scheduler.busy:
            self.scheduler.step()
        for handle, events, expected in self.runs:
            events += handle.new_events()
            assert handle.error is None
            if events:
                assert_decides_as(events, expected)
        assert nothing_is_held(self.prefixes)


def test_an_explorer_keeps_what_its_calls_compute(twins):
    model = twins("llama").ours
    settings = {"max_new_tokens": 6, "max_paths": 4}
    kept = neutral_explorer(model, prefix_cache_mib=8, **settings)
    without = neutral_explorer(model, **settings)
    runs = {
        explorer: [explorer.run(LONG, seed=seed) for seed in (1, 2)] for explorer in (kept, without)
    }
    for found, wanted in zip(runs[kept], runs[without], strict=True):
        assert_decides_as(found.events, wanted.events)
    prompt = len(runs[kept][0].started.prompt_tokens)
    assert [run.tokens_reused for run in runs[kept]] == [0, prompt - 1]
    assert [run.tokens_needed for run in runs[kept]] == [
        run.tokens_through_model for run in runs[without]
    ]


@pytest.mark.parametrize(
    ("dtype", "weights"), [("float32", "as-loaded"), ("bfloat16", "as-loaded"), ("float32", "int8")]
)
def test_in_lower_precision_entropies_agree_within_rounding(dtype, weights):
    """The text is part of the prompt, so that no draw near a boundary can go another way."""
    model = load_model("embedded", dtype=dtype, weights=weights)
    config = BranchingConfig(policy="greedy", max_paths=1, max_new_tokens=4)
    text = "Once upon a time, there was a little girl who had a red ball and a brown dog. " * 4
    prefixes = prefixes_of(model)
    first, again = (
        fold(event_stream(model, Request(text, config), prefixes=prefixes)) for _ in range(2)
    )
    assert again.tokens_reused == len(first.started.prompt_tokens) - 1 > 60
    entropies = [run.paths[0].tokens[0].entropy for run in (first, again)]
    assert entropies[0] == pytest.approx(entropies[1], abs=1e-4 if dtype == "float32" else 0.1)


def test_rows_that_are_read_in_place_count_towards_the_limit_of_a_run(twins):
    shape = twins("llama").ours.kv_shape
    prefixes = Prefixes(PrefixCache(shape, 2**20))
    text = [*range(2, 62)]

    def cache() -> PrefixedTreeCache:
        return PrefixedTreeCache(shape, 1, 80 * shape.row_bytes, False, prefixes)

    first = cache()
    first.prepare([0], [text])
    first.keep(0, text)
    second = cache()
    assert second.begin_with(text) == second.rows_in_place == 60
    second.prepare([0], [[2] * 20])
    with pytest.raises(MemoryLimitError):
        second.prepare([0], [[3]])
