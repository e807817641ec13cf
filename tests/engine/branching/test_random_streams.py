"""Counter-based randomness: a draw depends on its inputs alone, and serves one purpose."""

import itertools
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import events_of
from policies import EVERY

from eab.config import MAX_SEED
from eab.engine.branching import random_streams
from eab.engine.branching.random_streams import (
    ROOT,
    Purpose,
    child_stream_key,
    pruning_uniform,
    uniform,
)

SEEDS = st.integers(0, MAX_SEED)
STREAM_KEYS = st.integers(0, 2**64 - 1)
STEPS = st.integers(0, 5000)
PURPOSES = st.sampled_from(Purpose)

FROZEN_UNIFORMS = [0.6299085342998937, 0.19765265011863864, 0.8836289693691156, 0.8908864717254646]
FROZEN_PRUNING = 0.6131746863976323
FROZEN_KEYS = [259418745062592498, 15316269418215960375]


@given(seed=SEEDS, stream_key=STREAM_KEYS, step=STEPS, purpose=PURPOSES, number=st.integers(0, 16))
def test_a_draw_is_at_least_zero_and_below_one_and_repeats(seed, stream_key, step, purpose, number):
    drawn = uniform(seed, stream_key, step, purpose, number)
    assert 0 <= drawn < 1
    assert drawn == uniform(seed, stream_key, step, purpose, number)
    assert (drawn * 2**53).is_integer()


@given(seed=SEEDS, stream_key=st.integers(0, 2**64 - 2), step=STEPS, token=st.integers(0, 300_000))
def test_a_child_gets_a_stream_key_of_its_own(seed, stream_key, step, token):
    key = child_stream_key(stream_key, step, token)
    assert key not in (stream_key, ROOT, 2**64 - 1)
    assert key == child_stream_key(stream_key, step, token)
    assert key != child_stream_key(stream_key, step, token + 1)
    assert key != child_stream_key(stream_key, step + 1, token)


@pytest.mark.parametrize("varied", ["seed", "stream_key", "step", "number"])
def test_draws_are_uniform_along_each_input(varied):
    where = {"seed": 11, "stream_key": 22, "step": 33, "purpose": Purpose.TOKEN, "number": 0}
    draws = [uniform(**where | {varied: value}) for value in range(20_000)]
    counts = Counter(int(draw * 50) for draw in draws)
    assert chi_square(counts, 50) < 100  # expected: 49 +- 10; the bound is 5 sigma
    pairs = Counter((int(one * 7), int(two * 7)) for one, two in itertools.pairwise(draws))
    assert chi_square(pairs, 49) < 98, "consecutive draws are independent"


def chi_square(counts: Counter, cells: int) -> float:
    expected = counts.total() / cells
    seen = sum((count - expected) ** 2 / expected for count in counts.values())
    return seen + (cells - len(counts)) * expected


def test_all_draws_differ_and_never_change_so_that_old_seeds_repeat():
    places = itertools.product(range(6), range(6), range(6), Purpose, range(6))
    numbers = {uniform(*place) for place in places}
    pruning = {pruning_uniform(*place) for place in itertools.product(range(6), range(6))}
    assert len(numbers | pruning) == len(Purpose) * 6**4 + 36
    assert [
        uniform(0, ROOT, 0, Purpose.TOKEN),
        uniform(1, ROOT, 2, Purpose.TOKEN, 3),
        uniform(MAX_SEED, 2**64 - 1, 4095, Purpose.TOKEN, 1),
        uniform(1, ROOT, 2, Purpose.PERTURBATION, 3),
    ] == FROZEN_UNIFORMS
    assert pruning_uniform(7, 3) == FROZEN_PRUNING
    assert [child_stream_key(ROOT, 0, 0), child_stream_key(123, 45, 678)] == FROZEN_KEYS


Words = tuple[int, ...]  # hash inputs: seed, stream key, step and index; or those of a stream key


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[Words, Counter[str]]:
    """All random numbers that a run asks for, and how often each line of the code asks for them."""
    found: defaultdict[Words, Counter[str]] = defaultdict(Counter)
    compute = random_streams._hash

    def hash_and_note(*words: int) -> int:
        asking = sys._getframe(2)  # the caller of `uniform` or of a function like it
        code = asking.f_code
        found[words][f"{Path(code.co_filename).name}:{asking.f_lineno} {code.co_name}"] += 1
        return compute(*words)

    monkeypatch.setattr(random_streams, "_hash", hash_and_note)
    return found


def is_next_token(words: Words) -> bool:
    """Whether it draws a path's next token, which a draft model and verification also ask for."""
    return words[3] == Purpose.TOKEN


@pytest.mark.parametrize("drafter", ["none", "model", "prompt-lookup", "sibling-lookup"])
@pytest.mark.parametrize("policy", EVERY)
def test_a_random_number_serves_one_purpose(twins, asked, policy, drafter):
    """A purpose is a line of the code. A number that draws no next token is asked for once per run,
    or again where a draft token was rejected.
    """
    settings = {"max_new_tokens": 16, "entropy_threshold": 2.5, "top_k": 20, "seed": 3}
    settings |= {"policy": policy, "drafter": drafter}
    for max_paths in (1, 2, 7):
        asked.clear()
        model, draft = twins("llama").ours, twins("llama", 1).ours
        assert events_of(model, "w5 w9 w3 w5 w9", draft=draft, max_paths=max_paths, **settings)
        assert any(is_next_token(words) for words in asked)
        assert_one_purpose_each(asked, repeats=drafter != "none")


def assert_one_purpose_each(asked: dict[Words, Counter[str]], repeats: bool) -> None:
    shared = {words: lines for words, lines in asked.items() if len(lines) > 1}
    assert not shared
    again = {
        words: lines
        for words, lines in asked.items()
        if max(lines.values()) > 1 and not is_next_token(words) and words[3] != Purpose.STREAM_KEY
    }
    assert repeats or not again
