"""Each family of the table: every leaf has the log-probabilities and entropies of a full forward pass
by transformers, whatever the run does with rows, states, or a memory that the family keeps itself.
"""

import copy
from dataclasses import replace
from typing import get_args

import pytest
import torch
from equality import assert_leaves_match, assert_same_decisions
from family_table import FAMILIES, MAMBA2, NEMOTRON, STATES, Family, with_states
from made_runs import events_of, run_of
from tiny_models import with_large_weights, word_tokenizer
from torch import nn

from eab.config import BranchingConfig, CacheName
from eab.engine.build import kv_need
from eab.engine.caches.own_memory import bytes_of, compact
from eab.engine.caches.prefix_cache import PrefixCache, can_reuse
from eab.engine.loop import event_stream
from eab.engine.models.loading import load_model, wrap_model
from eab.engine.models.own_cache import OwnCacheModel
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.engine.what_if.resimulate import resimulate
from eab.errors import ConfigError, ModelError, PromptError
from eab.figures.run_comparison import rows_sentence
from eab.run import fold
from eab.run.events import Event, KvMeasured, RunEnded

SPECIAL = (
    # transformers' masks get the length of a text from an attention layer.
    with_states("no attention", "BambaConfig", MAMBA2, way="own cache", quick=True),
    # With limited time steps, cached states in transformers differ from those of a full pass.
    with_states("limited steps", "NemotronHConfig", NEMOTRON, way="own cache"),
)
ROWS = {
    family.name: family
    for family in (*FAMILIES, *SPECIAL)
    if family.way in ("own cache", "tree and states")
}
WHOLE_TEXTS = ("GPT-1", "no attention", "limited steps")  # every step reads the whole texts
# Longer than the windows and chunks of these models
PROMPT = " ".join(f"w{2 + (7 * index) % 60}" for index in range(20))
FORKING = BranchingConfig(
    max_new_tokens=12, max_paths=6, seed=3, entropy_threshold=0.5, min_fork_weight=0.0
)
# These read one text at a time, read one token at a time, or keep K and V themselves.
ONE_BY_ONE = ("RWKV", "Jamba", "Falcon with ALiBi", "RecurrentGemma")
TOLERANCE = 1e-4  # parts of these models compute in float32 even if the rest is float64


def pair(name, words):
    """Our model of this family, and the plain one."""
    family = ROWS[name]
    made, plain = (with_large_weights(family.kind, family.dtype, **family.more) for _ in range(2))
    return wrap_model(made, words, name), plain


@pytest.fixture(scope="module")
def mamba() -> OwnCacheModel:
    return pair("Mamba", word_tokenizer())[0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if family.quick else pytest.mark.slow)
        for name, family in ROWS.items()
    ],
)
def test_every_leaf_equals_a_full_forward_pass(name, words):
    ours, plain = pair(name, words)
    shares = ROWS[name].way == "tree and states"
    assert isinstance(ours, OwnCacheModel)
    assert bool(ours.kv_shape.own.shared_layers) == ours.card.shares_rows == shares
    words = "The KV rows of" if shares else "Nothing is shared between paths, because"
    assert ours.card.own_memory.startswith(words)
    run = run_of(ours, PROMPT, FORKING)
    assert len(run.leaves()) > 1
    assert_leaves_match(run, plain, TOLERANCE)
    drafts = {"drafter": "prompt-lookup", "draft_length": 3}
    other = drafts if [*ROWS].index(name) % 2 else {"cache": "recompute"}
    assert_leaves_match(run_of(ours, PROMPT, FORKING, **other), plain, TOLERANCE)
    held = {event.usage.bytes_held for event in run.events if isinstance(event, KvMeasured)}
    assert (held == {0}) == (name in WHOLE_TEXTS)


def test_a_state_does_not_grow_with_the_text(mamba):
    run = run_of(mamba, PROMPT, FORKING, max_paths=1)
    usages = [step.kv for step in run.steps if step.kv is not None]
    state = mamba.card.state_bytes
    assert mamba.card.row_bytes == 0
    assert {usage.bytes_held for usage in usages} == {state}
    assert {usage.own_bytes for usage in usages} == {(state,)}
    assert "states, whatever the length of its text" in mamba.card.own_memory


def test_each_path_holds_a_copy_and_the_bytes_match_the_tensors(words, monkeypatch):
    plain, seen = pair("RecurrentGemma", words)[1], []
    ours = OwnCacheModel(plain, words, "it", reason="of this test")
    read = ours._reader.read
    monkeypatch.setattr(ours._reader, "read", lambda *given: seen.append(read(*given)) or seen[-1])
    run = run_of(ours, PROMPT, FORKING)
    kv = run.peak_kv
    assert kv.bytes_held == max(bytes_of(compact(memory)) for _, memory in seen)
    assert sum(kv.own_bytes) <= kv.bytes_held < sum(kv.own_bytes) + len(kv.paths)
    assert len(kv.own_bytes) == len(kv.paths) == FORKING.max_paths
    assert kv.rows_shared == kv.rows_private == 0


def test_a_hybrid_shares_rows_and_copies_states(words):
    ours, _ = pair("LFM2", words)
    run = run_of(ours, PROMPT, FORKING)
    kv, state = run.peak_kv, ours.card.state_bytes
    assert kv.own_bytes == (state,) * len(kv.paths)
    assert kv.rows_shared > len(run.started.prompt_tokens)
    rows = kv.rows_shared + kv.rows_private + kv.rows_spare
    assert kv.bytes_held == rows * ours.card.row_bytes + sum(kv.own_bytes)
    assert sum(kv.bytes_by_use(ours.card.row_bytes)) == kv.bytes_held


def test_own_memory_of_a_plain_family_gives_the_decisions_of_the_tree_cache(twins, words):
    tree = twins("qwen2").ours
    own = OwnCacheModel(twins("qwen2").plain, words, "qwen2", reason="of this test")
    for settings in ({}, {"drafter": "sibling-lookup"}, {"policy": "original"}):
        expected = run_of(tree, PROMPT, FORKING, **settings)
        assert_same_decisions(run_of(own, PROMPT, FORKING, **settings), expected)
    draft = run_of(tree, PROMPT, FORKING, own, drafter="model")
    assert_same_decisions(draft, run_of(tree, PROMPT, FORKING))


@pytest.mark.parametrize("name", ["RWKV", "LFM2"])  # RWKV reads one text at a time
def test_a_pass_that_fails_in_the_middle_of_a_run_is_repeated_correctly(name, words, monkeypatch):
    ours, plain = pair(name, words)
    read, calls = ours._reader.read, []

    def breaking(*given):
        calls.append(given)
        result = read(*given)  # the memory now contains the tokens
        if len(calls) == 9:
            raise RuntimeError("broken")
        return result

    monkeypatch.setattr(ours._reader, "read", breaking)
    scheduler = Scheduler(ours)
    handles = [scheduler.submit(Request(PROMPT, FORKING)) for _ in range(2)]
    for handle in handles:  # the shared pass of two runs fails, then each has its own
        run = fold(list(handle))
        assert run.ended.reason == "finished"
        assert_leaves_match(run, plain, TOLERANCE)


def test_the_memory_limit_ends_the_run_before_it_is_exceeded(words):
    ours, _ = pair("Falcon with ALiBi", words)
    limit = 1  # MiB
    long = " ".join(["w5 w9"] * 60)
    roomy = run_of(ours, PROMPT, FORKING)
    ours.kv_shape = replace(ours.kv_shape, own=replace(ours.kv_shape.own, row_bytes=2**14))
    events = events_of(ours, long, FORKING, kv_limit_mib=limit, max_new_tokens=8)
    assert roomy.ended.reason == "finished"
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "failed"
    assert "kv_limit_mib allows 1" in events[-1].message


def test_a_cache_that_the_model_cannot_use_is_refused_with_an_explanation(mamba):
    with pytest.raises(ConfigError, match="this model keeps its memory in its own way"):
        run_of(mamba, PROMPT, FORKING, cache="concat-cow")


@pytest.mark.parametrize("name", ["Mamba", "LFM2"])
def test_a_what_if_needs_no_model(name, words):
    events = events_of(pair(name, words)[0], PROMPT, FORKING)
    again = fold(resimulate(events, 0.5).events)
    assert again.started.what_if == "exact"
    assert_same_decisions(again, fold(events))
    kv, wanted = again.peak_kv, fold(events).peak_kv
    assert (kv.own_bytes, kv.rows_shared) == (wanted.own_bytes, wanted.rows_shared)
    words = rows_sentence(events, resimulate(events, r=8).events)
    assert ("r changes nothing" in words) == (name == "Mamba")


def test_a_model_with_nan_weights_is_refused(words):
    model = with_large_weights("MambaConfig", state_size=4)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="computes NaN logits"):
        wrap_model(model, words)


def test_memory_that_gives_different_logits_is_not_used(words, monkeypatch):
    model = with_large_weights("MambaConfig", state_size=4)
    honest = OwnCacheModel(model, words, "mamba", reason="of this test")._reader._read.__func__

    def forgetful(self, memory, ids, start, *more):
        logits, memory = honest(self, memory, ids, start, *more)
        return logits * (1.5 if start and self.convention.keeps else 1.0), memory

    monkeypatch.setattr("eab.engine.models.own_reader.OwnReader._read", forgetful)
    ours = OwnCacheModel(model, words, "mamba", reason="of this test")
    assert "every step reads the whole text again" in ours.card.own_memory


@pytest.mark.parametrize("stored", [{"weights": "int8"}, {"layout": "prepacked"}], ids=str)
def test_weights_that_the_code_of_a_model_reads_directly_stay_as_loaded(stored, tmp_path, words):
    model = with_large_weights("MambaConfig", torch.float32, state_size=4, hidden_size=64)
    model.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    ours = load_model(str(tmp_path), device="cpu", **stored)
    assert run_of(ours, PROMPT, FORKING).ended.reason == "finished"
    layers = dict(ours._model.named_modules())
    assert type(layers["backbone.layers.0.mixer.dt_proj"]) is nn.Linear
    assert type(layers["backbone.layers.0.mixer.in_proj"]) is not nn.Linear


@pytest.mark.parametrize(("kind", "window"), [("Gemma3TextConfig", 0), ("MistralConfig", -3)])
def test_a_window_without_tokens_is_refused(kind, window, words):
    more = {"layer_types": ["sliding_attention", "full_attention"]} if "Gemma" in kind else {}
    model = with_large_weights(kind, sliding_window=window, **more)
    with pytest.raises(ModelError, match=f"says sliding_window = {window}, but a window has"):
        wrap_model(model, words)


@pytest.mark.parametrize(
    ("name", "drafter"),
    [
        ("Mamba", "none"),
        ("LFM2", "prompt-lookup"),
        *(pytest.param(name, "prompt-lookup", marks=pytest.mark.slow) for name in ONE_BY_ONE),
    ],
)
def test_a_run_waits_until_there_is_room_for_all_its_states(name, drafter, words):
    ours, _ = pair(name, words)
    # An adaptive draft length would depend on times, and the bytes held on the length.
    config = replace(FORKING, drafter=drafter, draft_length=2)
    settings = [replace(config, seed=seed) for seed in range(3)]
    alone = [run_of(ours, PROMPT, config) for config in settings]
    need = kv_need(ours, None, Request(PROMPT, config)).fixed
    assert need >= max(run.peak_kv.bytes_held for run in alone)
    scheduler = Scheduler(ours, token_budget=40, kv_limit_mib=2.5 * need / 2**20)
    handles = [scheduler.submit(Request(PROMPT, config)) for config in settings]
    scheduler.step()
    assert scheduler.running == handles[:2]
    while scheduler.busy:
        scheduler.step()
    assert not any(handle.preemptions for handle in handles)
    for handle, expected in zip(handles, alone, strict=True):
        run = fold(handle.new_events())
        texts = (sorted(one.samples, key=lambda text: text.token_ids) for one in (run, expected))
        for text, wanted in zip(*texts, strict=True):
            assert text.token_ids == wanted.token_ids
            assert text.log_probs == pytest.approx(wanted.log_probs, abs=TOLERANCE)
        assert run.peak_kv.own_bytes == expected.peak_kv.own_bytes
        assert run.peak_kv.rows_shared == expected.peak_kv.rows_shared


def test_a_mask_that_begins_at_some_length_is_checked_beyond_it(words) -> None:
    window = 40
    plain = with_large_weights("DogeConfig", keep_window_size=window)
    ours = wrap_model(with_large_weights("DogeConfig", keep_window_size=window), words)
    prompt = " ".join(f"w{2 + (7 * index) % 60}" for index in range(window - 2))
    run = run_of(ours, prompt, FORKING, policy="greedy", max_new_tokens=6)
    text = [*run.started.prompt_tokens]
    for token in run.tokens(0):  # Doge's logits before a token depend on the length of the pass
        expected = plain(torch.tensor([text])).logits[0, -1].log_softmax(-1)[token.id].item()
        assert token.log_prob == pytest.approx(expected, abs=TOLERANCE)
        text.append(token.id)
    assert len(text) > window


def test_a_mask_that_begins_beyond_every_check_limits_the_context(words) -> None:
    sizes = {"keep_window_size": 600, "max_position_embeddings": 700}
    ours = wrap_model(with_large_weights("DogeConfig", **sizes), words)
    with pytest.raises(PromptError, match="is 600 tokens"):
        run_of(ours, " ".join(["w5"] * 600), FORKING)


# The path limit never acts: which path it ends can depend on how weights are rounded.
CONFIG = BranchingConfig(
    max_new_tokens=14, max_paths=40, min_fork_weight=0.2, entropy_threshold=0.5, temperature=3.0
)
WAYS = {f"cache {name}": {"cache": name} for name in get_args(CacheName) if name != "tree"} | {
    "padded attention": {"attention": "padded", "r": 5},
    "drafts": {"drafter": "prompt-lookup"},
}
HALVES = [[*WAYS][:3], [*WAYS][3:]]  # one half for each second family
TABLE = [
    pytest.param(family, id=family.name, marks=() if family.quick else pytest.mark.slow)
    for family in FAMILIES
    if family.what != STATES
]


@pytest.mark.parametrize("family", TABLE)
def test_a_family_runs_as_the_table_says(family: Family, words):
    plain = family.model()
    if family.way == "refused":
        with pytest.raises(ModelError, match=family.why):
            wrap_model(plain, words)
        return
    ours = wrap_model(copy.deepcopy(plain), words)
    shape = ours.kv_shape
    assert (shape.own is not None) == (family.way == "own cache")
    events = events_of(ours, PROMPT, CONFIG)
    run = fold(events)
    assert len(run.leaves()) > 1
    assert_leaves_match(run, plain, family.tolerance)
    rounding = 2 * family.tolerance
    for way in [] if shape.own else HALVES[FAMILIES.index(family) % 2]:
        other = events_of(ours, PROMPT, replace(CONFIG, **WAYS[way]))
        if way == "drafts":  # different passes put its events in another order
            assert texts(other) == texts(events)
        else:
            assert_same_decisions(fold(other), run, rounding)
    prefixes = PrefixCache(shape, 2**24)
    for _ in range(2):  # the second run finds what the first one left
        again = list(event_stream(ours, Request(PROMPT, CONFIG), prefixes=prefixes))
        assert_same_decisions(fold(again), run, rounding)
    known = len(run.started.prompt_tokens) - 1
    assert fold(again).tokens_reused == (known if can_reuse(shape) else 0)


def texts(events: list[Event]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in fold(events).samples]
