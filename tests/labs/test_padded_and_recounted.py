"""r = auto and padded attention in the engine: the same tokens and exact events; and a recorded run
counted at any r.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from equality import decisions
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_runs import invented_run
from made_runs import bundled, events_of, run_of
from processor import needs_compiled

from eab.engine import compiled
from eab.engine.caches.growth import CostModel
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.figures.kv_memory import demand_of
from eab.labs.decode_steps import Calibrator, calibrate
from eab.lessons import bundled_runs
from eab.run import RunState, fold
from eab.run.events import Progressed, RowsAllocated
from eab.run.record import dumps, loads

SHAPE = KVShape(2, 2, 8, torch.float32, torch.device("cpu"), group=2)
BASE: dict[str, Any] = {"entropy_threshold": 0.8, "max_paths": 7, "max_new_tokens": 24, "seed": 3}


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"r": "auto"}),
        ("qwen2", {"attention": "padded"}),
        ("llama", {"attention": "padded", "r": "auto"}),
        ("mistral", {"attention": "padded", "r": "auto"}),
    ],
)
def test_auto_growth_and_padded_attention_give_the_same_tokens(
    twins: Callable[..., Any], family: str, settings: dict[str, Any]
) -> None:
    model = twins(family).ours
    plain = events_of(model, "w5 w7 w9", **BASE, r=16)
    other = events_of(model, "w5 w7 w9", **BASE | settings)
    assert len(fold(plain).leaves()) > 2
    for ours, theirs in zip(decisions(other), decisions(plain), strict=True):
        assert type(ours) is type(theirs)
        if hasattr(ours, "entropy"):
            assert ours.entropy == pytest.approx(theirs.entropy, abs=1e-9)
        else:
            assert getattr(ours, "token", None) == getattr(theirs, "token", None)


def test_an_old_file_without_the_new_fields_loads() -> None:
    """Older files lack, among other fields, the r of a growth, the attention and the drafter."""
    data = dumps(bundled("bridge"))
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    for line in lines:
        started = line.get("event") == "RunStarted"
        for name in ("draft", "what_if", "continued") if started else ("draft_seconds",):
            line.pop(name, None)
        line.get("growth", {}).pop("r", None)
        for name in ("attention", "drafter", "draft_length"):
            line.get("config", {}).pop(name, None)
    events = loads(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert all(event.growth.r == 0 for event in events if isinstance(event, RowsAllocated))
    assert fold(events).started.config.attention == "sliced"  # type: ignore[union-attr]


@pytest.mark.parametrize("compiles", [pytest.param(True, marks=needs_compiled), False])
@pytest.mark.parametrize("size", [8, 16])  # of heads: whole vectors of AVX2, and of AVX-512
def test_padded_attention_visits_the_spare_rows_and_nothing_leaks(
    monkeypatch: pytest.MonkeyPatch, compiles: bool, size: int
) -> None:
    monkeypatch.setattr(compiled, "can_compile", lambda: compiles)
    shape = replace(SHAPE, head_dim=size)
    sizes = ((3, 4), (1, 0), (1, 0), (2, 1))
    answers = []
    for padded in (False, True):
        cache = TreeCache(shape, 8, 2**30, padded)
        torch.manual_seed(1)
        found = []
        for tokens, trimmed in sizes:
            query, key = torch.randn(1, 4, tokens, size), torch.randn(1, 2, tokens, size)
            cache.prepare([0], [[0] * tokens])
            found += [cache.attend(layer, query, key, key, 0.3) for layer in range(2)]
            assert cache._end == (cache.rows if padded else cache.end)
            cache.trim(0, cache._table.lengths[0] - trimmed % 2)
        answers.append(found)
    for sliced, padded_answer in zip(*answers, strict=True):
        torch.testing.assert_close(sliced, padded_answer)


@pytest.mark.parametrize(
    "recording", bundled_runs.recordings(), ids=lambda recording: recording.file
)
def test_counting_a_recorded_run_at_its_own_r_gives_the_recorded_rows(
    recording: bundled_runs.Recording,
) -> None:
    run = fold(bundled_runs.events_of(recording))
    demand, r = demand_of(run), run.started.config.r
    assert isinstance(r, int)
    assert [(step.step, step.held) for step in demand.at(r)] == held(run)


@settings(max_examples=12)
@given(r=st.one_of(st.integers(1, 40), st.just("auto")), seed=st.integers(0, 5))
def test_counting_at_another_r_agrees_with_the_engine_at_that_r(
    twins: Callable[..., Any], r: Any, seed: int
) -> None:
    model = twins("llama").ours
    more = BASE | {"seed": seed}
    recorded, real = (run_of(model, "w5 w7 w9", **more, r=found) for found in (5, r))
    demand = demand_of(recorded)
    counted = demand.at(r)
    assert [(step.step, step.held) for step in counted] == held(real)
    copied = [step.copied for step in counted if step.grew][1:]
    growths = [step.growth for step in real.steps if step.growth is not None and step.growth.r]
    if r != "auto" and r < BASE["max_new_tokens"]:
        assert copied == [growth.rows_copied for growth in growths]


def held(run: RunState) -> list[tuple[int, int]]:
    measured = [(step.step, step.kv) for step in run.steps if step.kv is not None]
    return [(step, kv.rows_shared + kv.rows_private + kv.rows_spare) for step, kv in measured]


def test_runs_of_other_caches_are_not_counted() -> None:
    assert demand_of(fold(invented_run(1, 1, 1)[:1])) is None
    deep = bundled_runs.caches().runs["deep-copy"]
    assert demand_of(deep) is None


def test_the_calibration_measures_growths_and_passes_here() -> None:
    costs = None

    def rounds():
        nonlocal costs
        costs = yield from calibrate(Calibrator(SHAPE, 160), rounds=2)

    progress = list(rounds())
    assert isinstance(costs, CostModel)
    assert [type(one) for one in progress] == [Progressed] * 2
    assert progress[-1].share == 1.0
    assert min(asdict(costs).values()) >= 0
