"""The engine on a real vLLM server gives the same tokens as on this machine, and the server stores the
blocks that the bookkeeping names.

Runs on request: EAB_VLLM_URL names a server with the embedded model (see docs/remote.md). For the
blocks, EAB_VLLM_EVENTS names the endpoint that the server connects to, such as
tcp://127.0.0.1:5557; the server must not have stored any of the text before.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.remote.model import RemoteModel
from eab.engine.request import Request
from eab.run import fold
from eab.run.events import KvMeasured

pytestmark = pytest.mark.vllm

PROMPTS = ("Once upon a time, there was a", "The cat sat on the", "One day, a girl named")
SETTINGS = {
    "default": BranchingConfig(top_k=20, max_new_tokens=24),
    "run ahead": BranchingConfig(
        top_k=20, max_new_tokens=24, max_paths=8, drafter="run-ahead", draft_length=3
    ),
    "one path ahead": BranchingConfig(
        top_k=20, max_new_tokens=40, max_paths=1, drafter="run-ahead"
    ),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_same_seed_gives_the_same_tokens(vllm, embedded, prompt, name, seed):
    config = replace(SETTINGS[name], seed=seed)
    here = replace(config, drafter="none", draft_length=0)
    found = fold(event_stream(vllm, Request(prompt, config)))
    wanted = fold(event_stream(embedded, Request(prompt, here)))
    assert len(found.paths) == len(wanted.paths)
    for path, expected in zip(found.paths, wanted.paths, strict=True):
        assert [token.id for token in path.tokens] == [token.id for token in expected.tokens]
        entropies = [token.entropy for token in expected.tokens]
        assert [token.entropy for token in path.tokens] == pytest.approx(entropies, abs=1e-3)


ENDPOINT = os.environ.get("EAB_VLLM_EVENTS", "")
QUIET_SECONDS = 2.0  # without an event: all have arrived
DEADLINE = 120.0  # seconds for the server to find the listener


class Blocks:
    """The blocks that the server has stored, each as all tokens up to its end."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ends: dict[Any, tuple[int, ...]] = {None: ()}  # by block hash
        self.stored: set[tuple[int, ...]] = set()

    def read(self, seconds: float) -> bool:
        """Read one batch of events; return False if none comes in time."""
        import msgpack

        if not self._socket.poll(1000 * seconds):
            return False
        _, events, *_ = msgpack.unpackb(self._socket.recv_multipart()[-1], strict_map_key=False)
        for event in events:
            if event["type"] == "BlockStored":
                self._store(event)
        return True

    def _store(self, event: Any) -> None:
        text = self._ends.get(event["parent_block_hash"])
        if text is None:
            return  # stored before this test listened
        size, tokens = event["block_size"], tuple(event["token_ids"])
        for index, name in enumerate(event["block_hashes"], 1):
            self._ends[name] = (*text, *tokens[: index * size])
            self.stored.add(self._ends[name])


@pytest.fixture
def blocks(vllm: RemoteModel) -> Iterator[Blocks]:
    """The blocks that the server stores from now on; it has found the listener."""
    if not ENDPOINT:
        pytest.skip("EAB_VLLM_EVENTS names no endpoint")
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.bind(ENDPOINT)  # the server connects, because the name has no *
        found = Blocks(socket)
        deadline = time.monotonic() + DEADLINE
        while not found.read(0.2):
            assert time.monotonic() < deadline, "the server sends no events to this endpoint"
            new_text = list(vllm.encode(f"{time.time_ns()} " * 6, BranchingConfig(top_k=20)))
            vllm._server.continue_texts([new_text], 20, 1)
        yield found


def test_the_server_stores_the_blocks_that_the_bookkeeping_names(vllm, blocks, monkeypatch):
    sent: list[list[list[int]]] = []
    ask = vllm._server.continue_texts

    def noted(texts, *rest):  # type: ignore[no-untyped-def]
        sent.append([list(text) for text in texts])
        return ask(texts, *rest)

    monkeypatch.setattr(vllm._server, "continue_texts", noted)
    size = vllm.kv_shape.blocks.size
    config = BranchingConfig(top_k=20, max_paths=8, max_new_tokens=3 * size)
    prompt = f"{time.time_ns()}. Once upon a time, there was a little girl"
    events = list(event_stream(vllm, Request(prompt, config)))
    while blocks.read(QUIET_SECONDS):
        pass

    def full(texts: list[list[int]]) -> set[tuple[int, ...]]:
        return {tuple(text[:end]) for text in texts for end in range(size, len(text) + 1, size)}

    assert full([text for texts in sent for text in texts]) <= blocks.stored
    measured = [event.usage for event in events if isinstance(event, KvMeasured)]
    assert len(measured) == len(sent) == config.max_new_tokens
    shared = 0
    for usage, texts in zip(measured, sent, strict=True):
        partly_full = sum(len(text) % size > 0 for text in texts)
        held = usage.bytes_held // (size * vllm.kv_shape.row_bytes)
        assert held == len(full(texts)) + partly_full
        shared += usage.rows_shared > 0
    assert shared
