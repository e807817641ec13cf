"""A run with speculation equals the run without it, in fewer forward passes, and its events describe the
draft tokens correctly. The adaptive draft length saves time or drafts nothing, on simulated machines
of known speed.
"""

from collections.abc import Callable
from functools import cache
from itertools import cycle
from typing import get_args

import numpy as np
import pytest
import torch
from equality import EXACT, PROMPT, assert_leaves_match, assert_same_decisions
from made_runs import events_of, run_of
from msgspec import structs

from eab.config import BranchingConfig, CacheName, DrafterName
from eab.engine.branching.sampling import Predictions
from eab.engine.caches.ledger import check_limit
from eab.engine.paths import Lookahead
from eab.engine.speculation.drafter import DraftRequest, NgramLookup
from eab.engine.speculation.speculator import AdaptiveLength, PassOutcome
from eab.errors import ConfigError, RecordError
from eab.run import RunState, fold, record
from eab.run.events import Event, KvMeasured, Speculated, StepTimed

DRAFTERS = [name for name in get_args(DrafterName) if name not in ("none", "run-ahead")]
SETTINGS = {
    "one path": {"max_paths": 1, "entropy_threshold": 20.0},
    "greedy": {"policy": "greedy", "max_paths": 1},
    "forks": {"entropy_threshold": 2.4, "max_paths": 9, "branch_factor": 2},
    "light paths stay": {"min_fork_weight": 0.05, "max_paths": 12, "r": 3},
    "cold": {"temperature": 0.5, "top_k": 9, "entropy_threshold": 1.0, "max_paths": 6},
    "independent": {"policy": "independent", "max_paths": 5},
    "arithmetic": {"policy": "arithmetic", "max_paths": 5},
    "stochastic beam": {"policy": "stochastic-beam", "max_paths": 5},
    "original": {"policy": "original", "entropy_threshold": 2.8, "max_paths": 7, "top_k": 30},
    "penalties": {"repetition_penalty": 1.3, "max_paths": 6},
}


ONE_PATH = BranchingConfig(drafter="model", max_paths=1, entropy_threshold=20.0)


def speculated(events: list[Event]) -> list[Speculated]:
    return [event for event in events if isinstance(event, Speculated)]


@pytest.fixture(scope="module")
def plain_run(twins) -> Callable[[str, int], RunState]:
    """plain_run(settings name, seed) -> the run without speculation, checked against the model
    without a cache.
    """

    @cache
    def made(name: str, seed: int) -> RunState:
        run = run_of(twins("llama").ours, PROMPT, max_new_tokens=24, seed=seed, **SETTINGS[name])
        if name != "penalties":  # checked in tests/engine/test_logits_processors.py
            assert_leaves_match(run, twins("llama").plain, EXACT)
        return run

    return made


@pytest.mark.parametrize(
    ("name", "drafter", "length", "seed"),
    [*zip([*SETTINGS] * 3, cycle(DRAFTERS), cycle((4, 1, 4, 0)), cycle((1, 1, 2)), strict=False)],
)
def test_speculation_changes_no_decision(twins, plain_run, name, drafter, length, seed):
    """Each of the settings with each drafter."""
    target, draft = twins("llama").ours, twins("llama", 1).ours
    plain, drafts = plain_run(name, seed), {"drafter": drafter, "draft_length": length}
    run = run_of(target, PROMPT, plain.started.config, draft, **drafts)
    assert_same_decisions(run, plain)


@pytest.mark.parametrize("name", get_args(CacheName))
def test_speculation_changes_no_decision_with_any_cache(twins, name):
    model = twins("qwen2").ours
    plain = BranchingConfig(
        max_new_tokens=20, entropy_threshold=2.4, max_paths=7, cache=name, seed=3
    )
    events = events_of(model, PROMPT, plain, model, drafter="model", draft_length=3)
    assert any(one.accepted for one in speculated(events))
    assert_same_decisions(fold(events), run_of(model, PROMPT, plain))


@pytest.mark.parametrize(("penalties", "tokens"), [({}, 33), ({"repetition_penalty": 1.2}, 25)])
@pytest.mark.parametrize("length", [1, 3, 7])
def test_a_draft_model_that_equals_the_target_is_always_accepted(twins, length, penalties, tokens):
    model = twins("llama").ours
    settings = {"max_new_tokens": tokens, "draft_length": length, "seed": 4, **penalties}
    events = events_of(model, PROMPT, ONE_PATH, model, **settings)
    run = fold(events)
    assert len(list(run.tokens(0))) == tokens
    assert all(one.accepted == len(one.draft_tokens) for one in speculated(events))
    # After the prompt, each pass gives length + 1 tokens.
    assert run.forward_passes == 1 + -(-(tokens - 1) // (length + 1))
    timed = [event for event in events if isinstance(event, StepTimed)]
    assert len(timed) == run.forward_passes
    assert sum(event.draft_seconds for event in timed) > 0
    assert run.started.draft == model.card
    with pytest.raises(ConfigError, match="no draft model is given"):
        events_of(model, PROMPT, ONE_PATH)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_accepted_draft_tokens_are_in_the_text_and_rejected_ones_are_not(embedded, drafter):
    settings = {"max_new_tokens": 60, "temperature": 0.3, "drafter": drafter, "draft_length": 4}
    prompt = "Anna has a red ball. Ben has a red ball. Anna has a"
    events = events_of(embedded, prompt, ONE_PATH, embedded, **settings)
    text = [token.id for token in fold(events).tokens(0)]
    assert sum(one.accepted for one in speculated(events)) > 2
    for one in speculated(events):
        expected = text[one.step : one.step + one.accepted]
        assert list(one.draft_tokens[: one.accepted]) == expected
        if one.verified > one.accepted:
            assert one.draft_tokens[one.accepted] != text[one.step + one.accepted]
        assert one.draft_texts == tuple(map(embedded.text, one.draft_tokens))


def test_rows_of_rejected_draft_tokens_are_freed_without_copying(twins):
    model, draft = twins("llama").ours, twins("llama", 1).ours
    events = events_of(model, PROMPT, ONE_PATH, draft, max_new_tokens=40, draft_length=4, r=64)
    assert any(one.accepted < len(one.draft_tokens) for one in speculated(events))
    measured = [event for event in events if isinstance(event, KvMeasured)]
    prompt = len(fold(events).started.prompt_tokens)
    for event in measured:  # rows: the text so far, and at most four draft tokens ahead
        certain = prompt + event.step
        assert certain <= event.usage.rows_private <= certain + 4
    assert measured[-1].usage.bytes_copied == 0


def test_a_draft_token_never_ends_a_text(twins):
    model = twins("llama").ours
    for seed in range(6):
        settings = {"max_new_tokens": 60, "draft_length": 6, "seed": seed}
        events = events_of(model, PROMPT, ONE_PATH, model, **settings)
        assert not any(set(one.draft_tokens) & model.stop_ids for one in speculated(events))


def ask(lookup: NgramLookup, path: int, text: list[int], limit: int = 4) -> list[int]:
    [draft] = lookup.propose([DraftRequest(path, 0, text, len(text), limit)])
    return draft


def test_prompt_lookup_continues_from_the_latest_longest_match():
    lookup = NgramLookup(siblings=False)
    assert ask(lookup, 0, [5, 6, 7, 8, 9, 1, 6, 7]) == [8, 9, 1, 6]
    repeats = [5, 6, 7, 8, 9, 1, 6, 7, 2, 6, 7]
    assert ask(lookup, 0, repeats) == [2, 6, 7, 2], "a text that repeats itself goes on so"
    assert ask(lookup, 0, [5, 6, 7, 8, 9, 1, 6, 7, 2, 6, 7, 30]) == []
    longer = [5, 6, 7, 8, 9, 1, 6, 7, 2, 6, 7, 30, 5, 6, 7]
    assert ask(lookup, 0, longer, limit=2) == [8, 9], "three tokens that agree go before two"


def test_sibling_lookup_also_reads_the_other_paths():
    for siblings, expected in ((False, []), (True, [4, 5])):
        lookup = NgramLookup(siblings)
        ask(lookup, 0, [1, 2])
        lookup.fork(0, [1, 2])
        ask(lookup, 1, [1, 2, 3, 9, 4, 5])
        assert ask(lookup, 2, [1, 2, 8, 3, 9]) == expected
        lookup.release(1)
        assert ask(lookup, 2, [1, 2, 8, 3, 9, 7, 3, 9]) == [7, 3, 9, 7]


@pytest.mark.parametrize(
    "wrong",
    [
        {"accepted": 3},
        {"verified": 3},
        {"accepted": 0, "verified": 2},
        {"draft_texts": ("a",)},
        {"path": 7},
        {"draft_tokens": (-1, 2)},
    ],
)
def test_a_file_with_impossible_draft_tokens_is_refused(twins, wrong):
    model = twins("llama").ours
    events = events_of(model, PROMPT, ONE_PATH, model, max_new_tokens=12, draft_length=2)
    place = next(index for index, event in enumerate(events) if isinstance(event, Speculated))
    events[place] = structs.replace(events[place], **wrong)
    with pytest.raises(RecordError):
        record.loads(record.dumps(events))


def test_what_a_path_takes_over_from_a_pass():
    """Only its own predictions; a draft token where it may fork is not accepted, nor rejected."""
    predictions = Predictions(torch.zeros(6, 40), BranchingConfig())
    state = Lookahead([1, 2], num_computed=1, draft_tokens=[7, 8, 9])
    assert state.verify(predictions, 2, [7, 8, 5, 4]) == (2, 3)
    assert (state.tokens, state.num_computed) == ([1, 2, 7, 8, 5], 4)
    kept = [(len(own.entropies), index) for own, index in state.predictions]
    assert kept == [(3, 0), (3, 1), (3, 2)]
    state = Lookahead([1, 2], num_computed=1, draft_tokens=[7, 8])
    assert state.verify(predictions, 0, [7, None, 3]) == (1, 1)
    assert state.tokens == [1, 2, 7]


@pytest.mark.parametrize("drafter", ["prompt-lookup", "sibling-lookup"])
def test_a_pass_goes_without_draft_tokens_whose_rows_do_not_fit(embedded, drafter, monkeypatch):
    refused = []

    def limited(needed, limit, *words):
        if needed > limit:
            refused.append(needed)
        check_limit(needed, limit, *words)

    tree = {"max_paths": 30, "entropy_threshold": 0.6, "branch_factor": 4, "max_new_tokens": 40}
    plain = BranchingConfig(**tree, temperature=1.3, seed=28, r=1)
    prompt = "Question: What is the capital of France?"
    expected = run_of(embedded, prompt, plain)
    peak = max(step.kv.bytes_held for step in expected.steps if step.kv is not None)
    monkeypatch.setattr("eab.engine.caches.tree.check_limit", limited)
    limit = -(-peak // 2**20)
    drafts = {"drafter": drafter, "draft_length": 16}
    run = run_of(embedded, prompt, plain, kv_limit_mib=limit, **drafts)
    assert refused, "the draft tokens did not fit"
    assert run.ended.reason == "finished"
    assert [leaf.id for leaf in run.leaves()] == [leaf.id for leaf in expected.leaves()]


def simulated(
    start: float, per_token: float, draft: float, alpha: float, paths: int = 1
) -> tuple[list[int], float]:
    """Return the lengths that AdaptiveLength chooses, and its time divided by that of plain
    decoding, where a pass of T tokens takes start + per_token * T seconds.
    """
    length, chosen, random, taken, plain = AdaptiveLength(), [], np.random.default_rng(0), 0.0, 0.0
    for _ in range(120):
        limit = length.choose()
        chosen.append(limit)
        accepted = [int(np.argmin([*(random.random(limit) < alpha), False])) for _ in range(paths)]
        drafts = [(limit, count) for count in accepted] if limit else []
        tokens = paths * (1 + limit)
        seconds = start + per_token * tokens
        steps, drafting = 1 + min(accepted), draft * limit * paths
        outcome = (tokens, seconds, drafting, limit * paths, limit > 0, drafts, paths, steps)
        length.observe(PassOutcome(*outcome))
        taken += seconds + drafting
        plain += steps * (start + per_token * paths)
    return chosen, taken / plain


def test_the_adaptive_length_saves_time_or_drafts_almost_nothing():
    sure, faster = simulated(start=1.0, per_token=0.01, draft=0.01, alpha=0.9)
    assert np.mean(sure[20:]) > 6
    assert faster < 0.3
    fair, faster = simulated(start=1.0, per_token=0.1, draft=0.05, alpha=0.6)
    assert 1 <= np.median(fair[20:]) <= 4
    assert faster < 0.8
    for costly, slower in (
        # The draft model is as slow as the target.
        simulated(start=1.0, per_token=0.01, draft=1.5, alpha=0.9),
        # A longer pass costs what it saves.
        simulated(start=0.1, per_token=1.0, draft=0.0, alpha=0.7),
        # Draft tokens are never accepted, and cost only their place in the pass.
        simulated(start=1.0, per_token=0.03, draft=0.0, alpha=0.0),
        # In every pass some path has a rejected token.
        simulated(start=1.0, per_token=0.3, draft=0.1, alpha=0.5, paths=20),
        simulated(start=1.0, per_token=0.03, draft=0.03, alpha=0.7, paths=8),
    ):
        assert np.mean(costly[20:]) < 0.6
        assert slower < 1.08, "trials cost a bounded share of the time, and the first drafts more"


def server_run(
    round_trip: float, per_token: float, alpha: float, paths: int = 1
) -> tuple[list[int], float]:
    """The same for a server that runs ahead: one step per pass, and no request while every path
    follows the server's predictions.
    """
    length, chosen, random, taken, steps = AdaptiveLength(), [], np.random.default_rng(0), 0.0, 200
    left, drafts = [0] * paths, []  # predictions left for each path
    for _ in range(steps):
        limit = length.choose()
        asked = left.count(0)
        seconds = (round_trip + per_token * asked * (1 + limit)) if asked else 0.0
        outcome = (asked * (1 + limit), seconds, 0.0, asked * limit, limit > 0, drafts, paths, 1)
        length.observe(PassOutcome(*outcome))
        left = [(have or 1 + limit) - 1 for have in left]
        drafts = [(1, int(random.random() < alpha)) for have in left if have]
        followed = iter(drafts)
        left = [have if have and next(followed)[1] else 0 for have in left]
        taken += seconds
        if asked:
            chosen.append(limit)
    return chosen, taken / (steps * (round_trip + per_token * paths))


def test_a_run_ahead_is_as_long_as_the_round_trip_justifies() -> None:
    far, faster = server_run(round_trip=20.0, per_token=1.0, alpha=0.55)
    assert 2 <= np.median(far) <= 6
    assert faster < 0.7
    near, faster = server_run(round_trip=1.0, per_token=1.0, alpha=0.55)
    assert np.median(near) <= 2
    assert faster < 1.02
    assert server_run(round_trip=1.0, per_token=3.0, alpha=0.3)[1] < 1.05
    assert server_run(round_trip=20.0, per_token=1.0, alpha=0.6, paths=2)[1] < 0.95


@pytest.mark.parametrize("round_trip", [1.0, 20.0])
def test_many_paths_do_not_run_ahead(round_trip: float) -> None:
    many, slower = server_run(round_trip=round_trip, per_token=1.0, alpha=0.6, paths=20)
    assert np.mean(many) < 0.1
    assert slower < 1.02


def test_a_slow_drafter_that_finds_nothing_is_rarely_asked():
    length = AdaptiveLength()
    asked = 0
    for _ in range(120):
        limit = length.choose()
        asked += limit > 0
        length.observe(PassOutcome(4, 1.0, 0.5 if limit else 0.0, 0, limit > 0, [], 4, 1))
    assert 1 <= asked <= 10
