"""The bytes that separate caches would hold: counted by hand, and compared with real caches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import CARD
from msgspec import structs
from tiny_models import tiny, word_tokenizer

from eab.config import AllocationStep, BranchingConfig, CacheName
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.engine.models.loading import wrap_model
from eab.figures.kv_memory import bytes_of_texts, path_lengths, separate_bytes
from eab.run.events import KVUsage, PathRows, RunStarted, WindowRows

SHAPE = KVShape(1, 1, 4, torch.float32, torch.device("meta"))


def started(prompt: int, cache: CacheName = "tree", **settings: object) -> RunStarted:
    tokens = tuple(range(prompt))
    config = BranchingConfig(cache=cache, **settings)  # type: ignore[arg-type]
    return RunStarted("", tokens, ("",) * prompt, CARD, config, 1.0)


def usage(*lengths: int) -> KVUsage:
    """The usage of paths of these lengths that share no rows."""
    paths = tuple(PathRows(path, 0, length) for path, length in enumerate(lengths))
    return KVUsage(0, 0, sum(lengths), 0, sum(lengths), paths)


def rows(run: RunStarted, *lengths: int) -> int:
    return separate_bytes(run, usage(*lengths)) // CARD.row_bytes


def test_one_cache_counted_by_hand() -> None:
    run = started(10, r=4, max_new_tokens=7)
    held = [10, 14, 14, 14, 14, 16, 16]  # the last token needs no row
    assert [rows(run, length) for length in range(10, 17)] == held
    assert rows(run, 11, 12, 16) == held[1] + held[2] + held[6], "each path has its own"


def test_a_cache_without_reserved_rows_is_compared_with_caches_without_them() -> None:
    for cache in ("deep-copy", "concat-cow", "recompute"):
        assert rows(started(10, cache, r=4, max_new_tokens=7), 11, 12) == 23  # type: ignore[arg-type]


def test_paths_without_rows_are_assumed_to_be_equally_long() -> None:
    nothing = tuple(PathRows(path, 0, 0) for path in range(3))
    assert path_lengths(KVUsage(0, 0, 0, 0, 38, nothing)) == [13, 13, 12]
    assert path_lengths(KVUsage(0, 0, 0, 0, 0, ())) == []


def test_impossible_lengths_are_counted_as_given() -> None:
    """Run files are untrusted, so these lengths must not fail."""
    assert rows(started(10, max_new_tokens=7), 3, 5000) == 5003


@given(
    prompt=st.integers(1, 40),
    new_tokens=st.integers(1, 60),
    r=st.one_of(st.integers(1, 70), st.just("auto")),
)
def test_a_separate_cache_is_a_tree_cache_with_one_path(
    prompt: int, new_tokens: int, r: AllocationStep
) -> None:
    run = started(prompt, r=r, max_new_tokens=new_tokens)
    cache = TreeCache(SHAPE, r, 2**30)
    up_front = new_tokens - 1 if r != "auto" and r >= new_tokens else 0
    for step in range(new_tokens):
        cache.reserve(prompt + up_front, new_tokens - step)
        cache.prepare([0], [[0] * (1 if step else prompt)])
        assert rows(run, prompt + step) == cache.rows
    assert cache.rows == prompt + new_tokens - 1, "nothing is left over at the end"


def test_in_layers_with_a_window_a_separate_cache_keeps_only_the_last_rows() -> None:
    row = CARD.row_bytes
    card = structs.replace(CARD, window_rows=(WindowRows(4, row // 4), WindowRows(20, row // 2)))
    run = structs.replace(started(10, "deep-copy", max_new_tokens=7), model=card)
    expected = (row - row // 4 - row // 2) * (12 + 30) + row // 4 * 8 + row // 2 * (12 + 20)
    assert separate_bytes(run, usage(12, 30)) == expected
    damaged = structs.replace(
        run, model=structs.replace(card, window_rows=(WindowRows(4, 2 * row),))
    )
    assert separate_bytes(damaged, usage(12, 30)) == 2 * row * 8


@pytest.mark.parametrize("name", ["Gemma3TextConfig", "MistralConfig"])
def test_the_caches_of_transformers_hold_the_same_number_of_bytes(name: str) -> None:
    more = {"layer_types": ["sliding_attention", "full_attention"]} if "Gemma" in name else {}
    plain, length = tiny(name, sliding_window=6, **more), 21
    model = wrap_model(tiny(name, sliding_window=6, **more), word_tokenizer())
    cache = plain(torch.arange(length)[None], use_cache=True).past_key_values
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    # transformers drops a row as soon as the next token does not read it
    left_out = sum(row_bytes for _, row_bytes in model.card.window_rows)
    assert bytes_of_texts(model.card, [length]) - left_out == held


def test_with_auto_one_cache_grows_by_a_quarter_of_its_rows() -> None:
    run = started(30, r="auto", max_new_tokens=20)
    held = [rows(run, length) for length in range(30, 50)]
    assert held == [30] + [37] * 7 + [46] * 9 + [49] * 3  # the last token needs no row
