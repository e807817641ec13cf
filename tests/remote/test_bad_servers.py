"""Servers that are gone, slow, busy, or answer nonsense: the run so far stays, and words say why."""

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bad_answers import (
    BAD_ANSWERS,
    CONFIG,
    DIALECTS,
    PROMPT,
    connected,
    run_until_failed,
    run_until_failed_at_once,
)
from fake_server import FakeServer

from eab.engine.continuing import continue_from
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.events import Pause, RunEnded
from eab.figures.memory_captions import memory_sentence
from eab.models.huggingface import HuggingFaceModel
from eab.record import save
from eab.remote import connection, operator
from eab.run import fold
from scripts.llama_server import llama_server


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_dialects_give_the_tokens_of_this_machine(
    fake: FakeServer, embedded: HuggingFaceModel, dialect: str
) -> None:
    model = connected(dialect)
    for drafter in ("none", "run-ahead"):
        config = replace(CONFIG, drafter=drafter, draft_length=2)
        found = fold(event_stream(model, Request(PROMPT, config)))
        wanted = fold(event_stream(embedded, Request(PROMPT, CONFIG)))
        assert [[token.token for token in path.tokens] for path in found.paths] == [
            [token.token for token in path.tokens] for path in wanted.paths
        ]
        kv = found.steps[-1].kv
        assert kv.bytes_held % (kv.block_size * model.kv_shape.row_bytes) == 0
        assert ("in blocks of 32 rows" in memory_sentence(found)) == (dialect == "vllm")
    assert model.kv_shape.blocks.size == (32 if dialect == "vllm" else 1)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_answer_ends_the_run_in_words_and_keeps_it(
    fake: FakeServer, dialect: str, name: str
) -> None:
    change, words = BAD_ANSWERS[name]
    model = connected(dialect)

    def spoil() -> None:
        fake.change = change

    before = len(fake.requests)
    events, message = run_until_failed(model, spoil)
    assert words in message
    asked = len(fake.requests) - before
    assert asked == sum(isinstance(event, Pause) for event in events) + 2  # one more try

    fake.change = lambda answer: answer
    run = fold(events)
    path = run.paths[0]
    tokens = [token.token for token in path.tokens]
    grown = fold(event_stream(model, continue_from(model, run.started, tokens, CONFIG)))
    assert len(grown.steps) == CONFIG.max_new_tokens


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_out_of_order_are_put_in_order(
    fake: FakeServer, embedded: HuggingFaceModel, dialect: str
) -> None:
    def backwards(answer: Any) -> Any:
        if isinstance(answer, list):
            return answer[::-1]
        return answer | {"choices": answer["choices"][::-1]}

    fake.change = backwards
    found = fold(event_stream(connected(dialect), Request(PROMPT, CONFIG)))
    wanted = fold(event_stream(embedded, Request(PROMPT, CONFIG)))
    assert [path.tokens[0].token for path in found.paths] == [
        path.tokens[0].token for path in wanted.paths
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_bad_answer_is_asked_for_again(fake: FakeServer, dialect: str) -> None:
    model, turn = connected(dialect), iter(range(10**6))
    fake.change = lambda answer: None if next(turn) % 2 == 0 else answer
    run = fold(event_stream(model, Request(PROMPT, CONFIG)))
    assert run.ended.reason == "finished"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_model_behind_the_name_is_noticed(fake: FakeServer, dialect: str) -> None:
    def renamed(answer: Any) -> Any:
        for entry in answer if isinstance(answer, list) else [answer]:
            entry["model"] = "another"
        return answer

    def spoil() -> None:
        fake.change = renamed

    _, message = run_until_failed(connected(dialect), spoil)
    assert "another model has answered" in message


def test_a_busy_server_is_asked_once_more_and_not_for_long(fake: FakeServer) -> None:
    model = connected("llama.cpp")
    turns = iter((1, 1))

    def busy_once(handler: Any) -> None:
        if next(turns, None) is None:
            fake.respond = None
        handler.send(b"{}", 429, Retry_After="0")

    fake.respond = busy_once
    _, message = run_until_failed_at_once(model)
    assert "asks to wait (HTTP 429)" in message

    fake.respond = lambda handler: handler.send(b"{}", 429, Retry_After="3600")
    before = len(fake.requests)
    _, message = run_until_failed_at_once(model)
    assert "asks to wait" in message
    assert len(fake.requests) == before + 1  # an hour is not waited


def test_a_slow_server_ends_the_run_in_words(fake: FakeServer) -> None:
    model = connected("llama.cpp", seconds=3.0)
    fake.respond = lambda handler: handler.send_slowly(b"[ ")
    _, message = run_until_failed_at_once(model)
    assert "within 3 seconds" in message


def test_a_huge_answer_is_not_read(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = connected("llama.cpp")
    monkeypatch.setattr(connection, "MAX_ANSWER", 2**16)
    fake.respond = lambda handler: handler.send(b"[" + b" " * 2**20)
    _, message = run_until_failed_at_once(model)
    assert "may belong to another program" in message


@pytest.mark.parametrize("content", [b"", b"[", b"<html>", b"[" * 10**5, b"\xff\xfe"])
def test_what_is_not_json_is_said(fake: FakeServer, content: bytes) -> None:
    model = connected("llama.cpp")
    fake.respond = lambda handler: handler.send(content)
    _, message = run_until_failed_at_once(model)
    assert "not JSON" in message


def test_stop_cancels_the_work_of_the_server(fake: FakeServer) -> None:
    """Stop acts while the server computes, and the connection is closed."""
    model = connected("llama.cpp", seconds=60.0)
    fake.respond = fake.wait_for_the_client_to_leave
    scheduler, stop = Scheduler(model), threading.Event()
    handle = scheduler.submit(Request(PROMPT, CONFIG), should_stop=stop.is_set)
    threading.Timer(0.5, stop.set).start()
    begun = time.monotonic()
    events = list(handle)
    assert time.monotonic() - begun < 20
    assert events[-1] == RunEnded(0, "stopped")
    assert fake.abandoned.wait(20)


def test_a_pass_goes_on_while_one_of_its_runs_is_wanted(fake: FakeServer) -> None:
    model = connected("llama.cpp")
    scheduler = Scheduler(model)
    stopped = scheduler.submit(Request(PROMPT, CONFIG))
    wanted = scheduler.submit(Request("The cat", CONFIG))
    events = []
    for event in wanted:
        events.append(event)
        stopped.stop()
    assert events[-1] == RunEnded(CONFIG.max_new_tokens, "finished")
    ends = [event for event in stopped.new_events() if isinstance(event, RunEnded)]
    assert [end.reason for end in ends] == ["stopped"]


def test_a_real_server_that_dies_leaves_the_run(
    gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with llama_server(gguf_file) as (url, process):
        monkeypatch.setenv(operator.ADDRESS, url)
        model = connected("llama.cpp")
        _, message = run_until_failed(model, lambda: (process.kill(), process.wait(20))[0])
    assert (
        "the server cannot be reached" in message or "connection to the server was lost" in message
    )


def test_the_key_goes_to_the_server_and_nowhere_else(
    fake: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = os.environ[operator.KEY]
    caplog.set_level("DEBUG")
    model = connected("vllm")
    events = list(event_stream(model, Request(PROMPT, CONFIG)))
    save(events, tmp_path / "run.eab")
    fake.respond = lambda handler: handler.send(handler.headers["Authorization"].encode(), 400)
    failed, message = run_until_failed_at_once(model)
    save(failed, tmp_path / "failed.eab")
    assert fake.keys == {f"Bearer {key}"}
    assert "(key)" in message
    shown = [message, repr(model.card), repr(operator.configured_address()), caplog.text]
    shown += [repr(vars(model)), json.dumps(fake.requests)]
    shown += [file.read_bytes().decode("latin-1") for file in tmp_path.iterdir()]
    shown += [repr(event) for event in (*events, *failed)]
    assert not any(key in text for text in shown)
    assert not any(fake.url in text for text in shown[5:])


def test_a_redirect_is_not_followed(fake: FakeServer) -> None:
    model = connected("llama.cpp")
    fake.respond = lambda handler: handler.send(b"", 307, Location="http://127.0.0.1:9/")
    _, message = run_until_failed_at_once(model)
    assert "HTTP 307" in message
