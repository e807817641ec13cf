"""Stop ends the work at the next layer, wherever it is, and what was computed before stays right."""

from dataclasses import replace

import pytest
from tiny_models import tiny, with_large_weights, word_tokenizer
from torch import nn

from eab.config import BranchingConfig
from eab.engine.build import PROBED
from eab.engine.caches.prefix_cache import PrefixCache, prefix_cache
from eab.engine.loop import event_stream, stop_when
from eab.engine.models.own_cache import with_cache
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.sweeping import sweep
from eab.run import fold
from eab.run.events import Event, RunEnded

CONTEXT, TOKENS = 4096, 2600
PROMPT = tuple(2 + index * index % 70 for index in range(TOKENS))
CONFIG = BranchingConfig(
    entropy_threshold=2, threshold_unit="rank", max_paths=3, max_new_tokens=6, seed=1
)
OWN = {"expand": 2, "n_groups": 2, "num_heads": 8, "head_dim": 8, "state_size": 8, "chunk_size": 8}


class Layers:
    """Counts the layers that the model has begun, and says when to stop."""

    def __init__(self) -> None:
        self.begun, self.stop_at = 0, -1
        model = tiny("LlamaConfig", max_position_embeddings=CONTEXT, spread=0.3)
        for layer in model.model.layers:
            layer.register_forward_pre_hook(self._note)
        self.model = with_cache(model, word_tokenizer(), "tiny")

    def _note(self, *_: object) -> None:
        self.begun += 1

    def should_stop(self) -> bool:
        return 0 <= self.stop_at <= self.begun

    def run(self, stop_at: int, config: BranchingConfig = CONFIG, **more: object) -> list[Event]:
        PROBED.clear()
        self.begun, self.stop_at = 0, stop_at
        request = Request("", config, token_ids=PROMPT)
        return [*event_stream(self.model, request, should_stop=self.should_stop, **more)]

    def assert_stops(self, stop_at: int, config: BranchingConfig = CONFIG, **more: object) -> None:
        end = self.run(stop_at, config, **more)[-1]
        assert (type(end), end.reason) == (RunEnded, "stopped")
        assert self.begun <= stop_at + 1


@pytest.fixture(scope="module")
def layers() -> Layers:
    return Layers()


@pytest.fixture(scope="module")
def in_all(layers: Layers) -> int:
    """How many layers a whole run begins, of two in each pass."""
    layers.run(-1)
    return layers.begun


@pytest.mark.parametrize(
    ("cache", "share"), [*(("tree", share) for share in (0.0, 0.6, 0.9)), ("recompute", 0.2)]
)
def test_no_second_layer_begins_after_stop(layers, in_all, cache, share) -> None:
    stop_at = 1 + 2 * int(share * in_all / 2)  # between the two layers of a pass
    layers.assert_stops(stop_at, replace(CONFIG, cache=cache))


def test_a_draft_model_stops_as_well(layers: Layers) -> None:
    config = replace(CONFIG, threshold_unit="nats", drafter="model", policy="greedy", max_paths=1)
    layers.run(-1, config, draft=layers.model)
    for stop_at in range(1, layers.begun, 8):
        layers.assert_stops(stop_at, config, draft=layers.model)


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_what_was_read_before_stop_is_found_again_and_right(layers, in_all, share) -> None:
    cache = prefix_cache(layers.model.kv_shape)
    assert isinstance(cache, PrefixCache)
    layers.run(1 + 2 * int(share * in_all / 2), prefixes=cache)
    assert cache.bytes_held > 0
    again = fold(layers.run(-1, prefixes=cache))
    assert layers.begun < in_all
    fresh = fold(layers.run(-1))
    assert [one.token_ids for one in again.samples] == [one.token_ids for one in fresh.samples]
    found, expected = ([one.log_prob for one in run.samples] for run in (again, fresh))
    assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("kind", ["Mamba2Config", "RwkvConfig"])
def test_a_model_with_a_memory_of_its_own_stops_between_layers(kind: str) -> None:
    made = tiny(kind, **(OWN if kind == "Mamba2Config" else {"context_length": 256}))
    begun, layers = [0], next(m for m in made.modules() if isinstance(m, nn.ModuleList))
    model = with_cache(made, word_tokenizer(), "tiny")
    for layer in layers:
        layer.register_forward_hook(lambda *_: begun.__setitem__(0, begun[0] + 1))
    begun[0] = 0
    asked = Request("", replace(CONFIG, threshold_unit="nats"), token_ids=PROMPT[:100])
    *_, end = event_stream(model, asked, should_stop=lambda: begun[0] >= 1)
    assert isinstance(end, RunEnded)
    assert (end.reason, begun[0]) == ("stopped", 1)


@pytest.mark.parametrize("cache", ["tree", "deep-copy", "concat-cow", "recompute"])
def test_a_run_in_the_same_pass_does_not_delay_stop_and_is_the_same(layers, cache) -> None:
    config = replace(CONFIG, threshold_unit="nats", cache=cache)
    asked = Request("", config, token_ids=PROMPT[:40])
    layers.stop_at = -1
    alone = fold(event_stream(layers.model, asked))
    for stop_at in (1, 3, 9):  # between the two layers of a pass
        scheduler = Scheduler(layers.model)
        layers.begun, layers.stop_at = 0, stop_at
        other = scheduler.submit(asked)
        long = Request("", config, token_ids=PROMPT)
        stopped = scheduler.submit(long, should_stop=layers.should_stop)
        while not stopped.ended:
            scheduler.step()
        assert layers.begun == stop_at + 2  # one layer, then two layers for the other alone
        beside = fold([*other.new_events(), *other])
        assert [one.token_ids for one in beside.samples] == [one.token_ids for one in alone.samples]
        expected = [one.log_prob for one in alone.samples]
        assert [one.log_prob for one in beside.samples] == pytest.approx(expected, abs=1e-4)


def test_a_sweep_that_is_stopped_inside_a_pass_keeps_no_unfinished_cell(layers: Layers) -> None:
    prompt = TuningPrompt("p", Question(" ".join(f"w{token}" for token in PROMPT[:50])))
    grid = Grid({"max_paths": [1, 2]}, replace(CONFIG, threshold_unit="nats"))
    layers.begun, layers.stop_at = 0, -1
    whole = sum(len(step.cells) for step in sweep(layers.model, [prompt], grid))
    assert whole == 2
    for stop_at in range(1, layers.begun, 6):
        layers.begun, layers.stop_at = 0, stop_at
        steps = [*stop_when(sweep(layers.model, [prompt], grid), layers.should_stop)]
        assert layers.begun <= stop_at + 1
        assert steps[-1] == RunEnded(0, "stopped")
        cells = [cell for step in steps[:-1] for cell in step.cells]  # type: ignore[union-attr]
        assert len(cells) < whole


def test_the_share_of_the_prompt_that_is_read_is_known_between_passes(layers: Layers) -> None:
    layers.stop_at = -1
    scheduler = Scheduler(layers.model)
    handle = scheduler.submit(Request("", CONFIG, token_ids=PROMPT))
    seen = []
    while not handle.ended:
        scheduler.step()
        seen.append(handle.reading)
    read, of = zip(*filter(None, seen), strict=True)
    assert {*of} == {TOKENS}
    assert len(read) > 10
    first = read[: read.index(max(read)) + 1]
    assert [*first] == sorted(first)
    assert seen[-1] is None


def test_a_run_beside_a_stopped_one_is_the_same_where_models_keep_their_own_memory() -> None:
    model = with_cache(with_large_weights("MambaConfig", state_size=4), word_tokenizer(), "tiny")
    asked = Request("w1 w2 w3", replace(CONFIG, threshold_unit="nats", entropy_threshold=0.5))
    alone = fold(event_stream(model, asked))
    for stop_at in (4, 9, 14):
        scheduler, calls = Scheduler(model), [0]

        def soon(calls: list[int] = calls, stop_at: int = stop_at) -> bool:
            calls[0] += 1
            return calls[0] > stop_at

        other, stopped = scheduler.submit(asked), scheduler.submit(asked, should_stop=soon)
        beside = fold(other)
        assert stopped.ended
        assert [one.token_ids for one in beside.samples] == [one.token_ids for one in alone.samples]
