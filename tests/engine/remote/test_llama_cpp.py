"""The engine on a real llama.cpp server gives the same tokens as on this machine."""

from dataclasses import replace

import pytest
import torch
from equality import assert_same_decisions
from made_runs import run_of

from eab.config import BranchingConfig
from eab.engine.caches.factory import make_cache
from eab.engine.caches.tree import TreeCache
from eab.engine.loop import serve
from eab.engine.remote.dialects import LlamaCpp
from eab.engine.remote.model import RemoteModel
from eab.engine.request import Request
from eab.errors import ConfigError, ModelError, ServerError
from eab.figures.captions import entropy_sentence
from eab.figures.kv_memory import memory_sentence
from eab.run import fold

pytestmark = pytest.mark.slow

PROMPTS = ("Once upon a time, there was a", "The cat sat on the", "1 + 1 is")
BASE = BranchingConfig(top_k=20, max_new_tokens=12, max_paths=6)
SETTINGS = {
    "fair": BASE,
    "few tokens": replace(BASE, top_k=5, temperature=0.7, entropy_threshold=0.4),
    "all that is granted": replace(BASE, top_k=100, top_p=0.9, branch_factor=4),
    "original": replace(BASE, policy="original"),
    "independent": replace(BASE, policy="independent", max_paths=3),
    "rank": replace(BASE, threshold_unit="rank", entropy_threshold=3.0),
    "run ahead": replace(BASE, drafter="run-ahead", draft_length=3),
    "run ahead as far as pays": replace(BASE, drafter="run-ahead"),
    "lookup": replace(BASE, drafter="sibling-lookup", draft_length=3, entropy_threshold=2.0),
    "filters": replace(BASE, top_k=100, min_p=0.05),
}
ROUNDING = 1e-4  # nats: both compute in float32, in different orders


def plain(config: BranchingConfig) -> BranchingConfig:
    """The settings that give the same tokens on this machine, without drafts."""
    return replace(config, drafter="none", draft_length=0)


@pytest.mark.parametrize(
    ("name", "seed"),
    [(name, index % 3) for index, name in enumerate(SETTINGS)]
    + [(name, seed) for name in ("fair", "run ahead") for seed in range(3, 6)],
)
def test_the_same_seed_gives_the_same_tree(llama, embedded, name, seed):
    config = replace(SETTINGS[name], seed=seed)
    prompt = PROMPTS[seed % 3]
    expected = run_of(embedded, prompt, plain(config))
    assert_same_decisions(run_of(llama, prompt, config), expected, ROUNDING)


@pytest.fixture
def sizes(llama: RemoteModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of texts in each request so far."""
    found: list[int] = []
    asked = llama._server.continue_texts

    def counted(texts, *rest):  # type: ignore[no-untyped-def]
        found.append(len(texts))
        return asked(texts, *rest)

    monkeypatch.setattr(llama._server, "continue_texts", counted)
    return found


def test_many_runs_share_their_requests(llama, embedded, sizes):
    requests = [
        Request(PROMPTS[index % 3], replace(config, seed=index))
        for index, config in enumerate(SETTINGS.values())
    ]
    found = [fold(handle) for handle in serve(llama, requests)]
    for run, request in zip(found, requests, strict=True):
        expected = run_of(embedded, request.prompt, plain(request.config))
        assert_same_decisions(run, expected, ROUNDING)
    alone = sum(len(run.steps) for run in found)
    assert len(sizes) < alone / 3
    assert max(sizes) > BASE.max_paths


@pytest.mark.parametrize(("max_paths", "most"), [(1, 0.65), (2, 0.85)])
def test_a_run_ahead_continues_through_forks(llama, sizes, max_paths, most):
    """At the default threshold nearly every step of a story may fork."""
    for seed, prompt in enumerate(PROMPTS[:2]):
        sizes.clear()
        config = replace(BASE, max_paths=max_paths, max_new_tokens=32, seed=seed)
        plain_run = run_of(llama, prompt, config)
        before = len(sizes)
        assert before == len(plain_run.steps)
        ahead = replace(config, drafter="run-ahead", draft_length=4)
        assert_same_decisions(run_of(llama, prompt, ahead), plain_run, ROUNDING)
        assert len(sizes) - before < most * before


def test_the_memory_sentence_says_what_is_computed_and_what_is_measured(llama: RemoteModel) -> None:
    run = run_of(llama, PROMPTS[0], BASE)
    last = run.steps[-1].kv
    assert last.block_size == 1
    assert last.rows_shared == 0  # each slot of llama.cpp has its own rows
    assert last.rows_private + last.rows_spare == last.bytes_held // llama.kv_shape.row_bytes
    assert 0.5 < last.tokens_cached / last.tokens_sent < 1
    assert last.bytes_copied == 0
    assert "on the server (computed, row by row)" in memory_sentence(run)
    assert "in its prefix cache (measured)" in memory_sentence(run)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.6, "drafter": "run-ahead", "draft_length": 3},
        {"top_k": 100, "top_p": 0.8},
    ],
    ids=["plain", "cold and ahead", "nucleus"],
)
def test_the_entropy_over_all_tokens_lies_within_its_bounds(llama, embedded, changes):
    run = run_of(llama, PROMPTS[0], replace(BASE, max_paths=3, **changes))
    prompt = list(run.started.prompt_tokens)
    narrow = 0
    for leaf in run.leaves():
        tokens = list(run.tokens(leaf.id))
        for index, token in enumerate(tokens):
            text = [*prompt, *(before.id for before in tokens[:index])]
            cache = make_cache("recompute", embedded.kv_shape, 1, 2**40)
            with torch.inference_mode():
                logs = embedded.forward([cache.prepare([0], [text])])[0].double().log_softmax(-1)
            whole = -float((logs.exp() * logs).sum())
            assert token.whole.low - ROUNDING <= whole <= token.whole.high + ROUNDING
            narrow += token.whole.high - token.whole.low < 2.0
    assert narrow > 10
    assert "nats (the band)" in entropy_sentence(run)
    here = run_of(embedded, PROMPTS[0], BASE)
    assert all(token.whole is None for path in here.paths for token in path.tokens)
    assert "the band" not in entropy_sentence(here)


def test_a_prompt_longer_than_a_chunk_is_read(llama: RemoteModel) -> None:
    assert llama.context == 512
    long = "the cat and the dog " * 60
    run = run_of(llama, long, replace(BASE, max_new_tokens=4))
    assert len(run.steps) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({"top_k": most}, "choose a top_k from 1 to 100") for most in (0, 101, 4096)),
        ({"repetition_penalty": 2}, "repetition_penalty is 2, which needs the logits of all"),
        ({"cache": "deep-copy"}, "its own KV cache; leave cache at tree"),
    ],
    ids=str,
)
def test_runs_that_would_not_be_exact_are_refused(llama, changes, words):
    with pytest.raises(ConfigError, match=words):
        run_of(llama, PROMPTS[0], replace(BASE, **changes))


def test_the_server_withholds_the_probabilities_of_half_a_character(llama: RemoteModel) -> None:
    """So the server is told to choose a letter, which does not change the probabilities."""
    half = next(token for token in range(256) if "\udce0" <= llama.text(token) <= "\udcef")
    server = LlamaCpp(llama._connection, half)
    server.served()
    text = list(llama.encode(PROMPTS[0], BASE))
    with pytest.raises(ServerError, match="probabilities"):
        server.continue_texts([text], 20, 1)
    [found] = llama._server.continue_texts([text], 20, 1)
    assert len(found.tops[0]) == 20


def test_a_batch_of_a_local_cache_is_refused(llama: RemoteModel) -> None:
    cache = TreeCache(llama.kv_shape, 1, 2**30)
    with pytest.raises(ModelError, match="on this machine"):
        llama.forward([cache.prepare([0], [[1, 2, 3]])])
