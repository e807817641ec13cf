"""Servers that are gone, slow, busy or answer nonsense: a run keeps its tokens and says why."""

import json
import os
import re
import threading
from dataclasses import replace
from typing import Any

import psutil
import pytest
from bad_answers import (
    BAD_ANSWERS,
    BAD_NUMBERS,
    CONFIG,
    PROMPT,
    connected,
    run_until_failed,
    run_until_failed_at_once,
)
from fake_server import FakeServer

from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.remote import connection
from eab.engine.remote.model import RemoteModel
from eab.engine.request import Request, continue_from
from eab.engine.scheduler import Scheduler
from eab.figures.kv_memory import memory_sentence
from eab.run import fold
from eab.run.events import Pause, RunEnded
from eab.run.record import save
from scripts.llama_server import llama_server


def backwards(answer: Any) -> Any:
    if isinstance(answer, list):
        return answer[::-1]
    return answer | {"choices": answer["choices"][::-1]}


def test_both_dialects_give_the_tokens_of_this_machine_whatever_the_order_of_answers(
    fake: FakeServer, model: RemoteModel, embedded: HuggingFaceModel, dialect: str
) -> None:
    forking = replace(CONFIG, entropy_threshold=0.5)
    wanted = fold(event_stream(embedded, Request(PROMPT, forking)))
    assert len(wanted.leaves()) == CONFIG.max_paths
    fake.change = backwards
    for drafter in ("none", "run-ahead"):
        config = replace(forking, drafter=drafter, draft_length=2)
        found = fold(event_stream(model, Request(PROMPT, config)))
        assert [[token.id for token in path.tokens] for path in found.paths] == [
            [token.id for token in path.tokens] for path in wanted.paths
        ]
        kv = found.steps[-1].kv
        assert kv.bytes_held % (kv.block_size * model.kv_shape.row_bytes) == 0
        assert ("in blocks of 32 rows" in memory_sentence(found)) == (dialect == "vllm")
    assert model.kv_shape.blocks.size == (32 if dialect == "vllm" else 1)


@pytest.mark.parametrize("name", [*BAD_ANSWERS, *BAD_NUMBERS])
def test_a_bad_answer_fails_the_run_with_a_message_and_keeps_its_tokens(fake, model, name):
    def spoil() -> None:
        fake.change, words = BAD_ANSWERS.get(name, (fake.change, ""))
        fake.change_tops, words = BAD_NUMBERS.get(name, (fake.change_tops, words))
        said.append(words)

    said: list[str] = []
    before = len(fake.requests)
    events, message = run_until_failed(model, spoil)
    assert said[0] in message
    asked = len(fake.requests) - before
    assert asked == sum(isinstance(event, Pause) for event in events) + 2  # one retry

    fake.answer_well()
    run = fold(events)
    tokens = [token.id for token in run.paths[0].tokens]
    grown = fold(event_stream(model, continue_from(model, run.started, tokens, CONFIG)))
    assert len(grown.steps) == CONFIG.max_new_tokens


def test_a_single_bad_answer_is_asked_for_again(fake: FakeServer, model: RemoteModel) -> None:
    turn = iter(range(10**6))
    fake.change = lambda answer: None if next(turn) % 2 == 0 else answer
    run = fold(event_stream(model, Request(PROMPT, CONFIG)))
    assert run.ended.reason == "finished"


def test_a_busy_server_is_asked_once_more_unless_it_asks_for_a_long_wait(fake, plain):
    turns = iter((1, 1))

    def busy_once(handler: Any) -> None:
        if next(turns, None) is None:
            fake.respond = None
        handler.send(b"{}", 429, Retry_After="0")

    fake.respond = busy_once
    _, message = run_until_failed_at_once(plain)
    assert "asks to wait (HTTP 429)" in message

    fake.respond = lambda handler: handler.send(b"{}", 429, Retry_After="3600")
    before = len(fake.requests)
    _, message = run_until_failed_at_once(plain)
    assert "asks to wait" in message
    assert len(fake.requests) == before + 1  # it does not wait an hour


def test_a_slow_server_fails_the_run_with_a_message(fake: FakeServer) -> None:
    model = connected("llama.cpp", seconds=1.5)
    fake.respond = lambda handler: handler.send_slowly(b"[ ")
    _, message = run_until_failed_at_once(model)
    assert "within 1.5 seconds" in message


NO_ANSWERS = [
    *((one, 200, "not JSON") for one in (b"", b"[", b"<html>", b"[" * 10**5, b"\xff\xfe")),
    (b"[" + b" " * 2**20, 200, "may belong to another program"),  # not read to its end
    (b"", 307, "HTTP 307"),  # not followed
]


@pytest.mark.parametrize(("content", "status", "words"), NO_ANSWERS, ids=lambda one: str(one)[:20])
def test_an_invalid_answer_is_explained(fake, plain, monkeypatch, content, status, words):
    monkeypatch.setattr(connection, "MAX_ANSWER", 2**17)
    elsewhere = "http://127.0.0.1:9/"
    fake.respond = lambda handler: handler.send(content, status, Location=elsewhere)
    assert words in run_until_failed_at_once(plain)[1]


def test_stopping_a_run_cancels_the_work_of_the_server(fake: FakeServer) -> None:
    model = connected("llama.cpp", seconds=600.0)
    fake.respond = fake.wait_for_the_client_to_leave
    scheduler, stop = Scheduler(model), threading.Event()
    handle = scheduler.submit(Request(PROMPT, CONFIG), should_stop=stop.is_set)
    threading.Timer(0.5, stop.set).start()
    events = list(handle)
    assert events[-1] == RunEnded(0, "stopped")
    assert fake.abandoned.wait(120)


def test_a_pass_continues_while_one_of_its_runs_is_wanted(fake, plain):
    scheduler = Scheduler(plain)
    stopped = scheduler.submit(Request(PROMPT, CONFIG))
    wanted = scheduler.submit(Request("The cat", CONFIG))
    events = []
    for event in wanted:
        events.append(event)
        stopped.stop()
    assert events[-1] == RunEnded(CONFIG.max_new_tokens, "finished")
    ends = [event for event in stopped.new_events() if isinstance(event, RunEnded)]
    assert [end.reason for end in ends] == ["stopped"]


def test_a_run_is_kept_when_a_real_server_dies(gguf_file, monkeypatch):
    with llama_server(gguf_file) as (url, number):
        process = psutil.Process(number)
        monkeypatch.setenv(connection.ADDRESS, url)
        model = connected("llama.cpp")
        _, message = run_until_failed(model, lambda: (process.kill(), process.wait(120))[0])
    assert re.search("the server cannot be reached|connection to the server was lost", message)


def test_the_key_goes_to_the_server_and_nowhere_else(fake, tmp_path, caplog):
    key = os.environ[connection.KEY]
    caplog.set_level("DEBUG")
    model = connected("vllm")
    events = list(event_stream(model, Request(PROMPT, CONFIG)))
    save(events, tmp_path / "run.eab")
    fake.respond = lambda handler: handler.send(handler.headers["Authorization"].encode(), 400)
    failed, message = run_until_failed_at_once(model)
    save(failed, tmp_path / "failed.eab")
    assert fake.keys == {f"Bearer {key}"}
    assert "(key)" in message
    shown = [message, repr(model.card), repr(connection.configured_address()), caplog.text]
    shown += [repr(vars(model)), json.dumps(fake.requests)]
    shown += [file.read_bytes().decode("latin-1") for file in tmp_path.iterdir()]
    shown += [repr(event) for event in (*events, *failed)]
    assert not any(key in text for text in shown)
    assert not any(fake.url in text for text in shown[5:])
