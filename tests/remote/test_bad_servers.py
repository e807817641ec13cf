"""Servers that are gone, slow, busy, or answer nonsense: the run so far stays, and words say why."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer

from eab.config import BranchingConfig
from eab.engine.continuing import continue_from
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.errors import ModelError
from eab.events import Event, Pause, RunEnded
from eab.figures.captions import memory_sentence
from eab.models.huggingface import HuggingFaceModel
from eab.record import save
from eab.remote import connection, operator
from eab.remote.loading import connect, load_model
from eab.remote.model import RemoteModel
from eab.run import fold
from scripts.llama_server import llama_server

PROMPT = "Once upon a time"
CONFIG = BranchingConfig(top_k=20, max_new_tokens=4, max_paths=3)
DIALECTS = ("llama.cpp", "vllm")


def first(entries: Any) -> Any:
    """The answer to the first text, in either dialect."""
    return entries[0] if isinstance(entries, list) else entries["choices"][0]


def tops(answer: Any) -> Any:
    """The most likely tokens of that answer."""
    entry = first(answer)
    if "logprobs" in entry:
        return entry["logprobs"]["top_logprobs"]
    return entry["completion_probabilities"][0]["top_logprobs"]


def drop_last(answer: Any) -> Any:
    if isinstance(answer, list):
        return answer[:-1]
    return answer | {"choices": answer["choices"][:-1]}


def mangled(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(answer: Any) -> Any:
        change(answer)
        return answer

    return changed


def without_numbers(answer: Any) -> None:
    entry = first(answer)
    entry.pop("logprobs" if "logprobs" in entry else "completion_probabilities")


def no_probability(answer: Any) -> None:
    found = tops(answer)
    if "logprob" in found[0]:
        found[0]["logprob"] = 0.5
    else:
        found[0][next(iter(found[0]))] = 0.5


def too_sure(answer: Any) -> None:
    found = tops(answer)
    for one in found[:3] if "logprob" in found[0] else []:
        one["logprob"] = -0.1
    if "logprob" not in found[0]:
        for name in [*found[0]][:3]:
            found[0][name] = -0.1


def unknown_token(answer: Any) -> None:
    found = tops(answer)
    if "logprob" in found[0]:
        found[0]["id"] = 10**6
    else:
        found[0]["token_id:1000000"] = -30.0


def too_few(answer: Any) -> None:
    found = tops(answer)
    if "logprob" in found[0]:
        del found[5:]
    else:
        found[0] = dict([*found[0].items()][:5])


def two_of_one(answer: Any) -> None:
    first(answer)["index"] = 7


BAD_ANSWERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "half an answer": (drop_last, "continuation"),
    "without numbers": (mangled(without_numbers), "cannot be used"),
    "above 1": (mangled(no_probability), "log-probability is 0.5"),
    "sum above 1": (mangled(too_sure), "add up to more than 1"),
    "unknown token": (mangled(unknown_token), "token that the model does not have"),
    "too few": (mangled(too_few), "names 5 tokens where 100"),
    "wrong index": (mangled(two_of_one), "continuation is missing"),
    "a list of nothing": (lambda _: [None], "cannot be used"),
    "a number": (lambda _: 3, "cannot be used"),
    "an object": (lambda _: {}, "cannot be used"),
    "nothing": (lambda _: None, "cannot be used"),
}


def connected(dialect: str, seconds: float = 20.0) -> RemoteModel:
    return connect(dialect, "embedded", seconds)


def run_until_failed(model: RemoteModel, spoil: Callable[[], None]) -> tuple[list[Event], str]:
    """A run whose server is spoiled after its second step."""
    events: list[Event] = []
    for event in generate(model, Request(PROMPT, CONFIG)):
        events.append(event)
        if isinstance(event, Pause) and sum(isinstance(one, Pause) for one in events) == 2:
            spoil()
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.reason == "failed"
    run = fold(events)
    assert len(run.steps) >= 2
    assert run.samples()
    return events, ended.message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_dialects_give_the_tokens_of_this_machine(
    fake: FakeServer, embedded: HuggingFaceModel, dialect: str
) -> None:
    model = connected(dialect)
    for drafter in ("none", "run-ahead"):
        config = replace(CONFIG, drafter=drafter, draft_length=2)
        found = fold(generate(model, Request(PROMPT, config)))
        wanted = fold(generate(embedded, Request(PROMPT, CONFIG)))
        assert [[token.token for token in path.tokens] for path in found.paths] == [
            [token.token for token in path.tokens] for path in wanted.paths
        ]
        kv = found.steps[-1].kv
        assert kv is not None
        assert kv.bytes_held % (kv.block_size * model.kv_shape.row_bytes) == 0
        assert ("in blocks of 32 rows" in memory_sentence(found)) == (dialect == "vllm")
    assert model.kv_shape.blocks is not None
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
    grown = fold(generate(model, continue_from(model, run.started, tokens, CONFIG)))
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
    found = fold(generate(connected(dialect), Request(PROMPT, CONFIG)))
    wanted = fold(generate(embedded, Request(PROMPT, CONFIG)))
    assert [path.tokens[0].token for path in found.paths] == [
        path.tokens[0].token for path in wanted.paths
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_bad_answer_is_asked_for_again(fake: FakeServer, dialect: str) -> None:
    model, turn = connected(dialect), iter(range(10**6))
    fake.change = lambda answer: None if next(turn) % 2 == 0 else answer
    run = fold(generate(model, Request(PROMPT, CONFIG)))
    assert run.ended is not None
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


def run_until_failed_at_once(model: RemoteModel) -> tuple[list[Event], str]:
    events = list(generate(model, Request(PROMPT, CONFIG)))
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "failed"
    return events, events[-1].message


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
    assert "something else behind this address" in message


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
    assert "the server cannot be reached" in message or "connection to the server broke" in message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fewer_log_probabilities_are_used_or_refused(fake: FakeServer, dialect: str) -> None:
    fake.max_top = 20
    assert connected(dialect).top == 20
    fake.max_top = 5
    with pytest.raises(ModelError, match="does not name the 20 most likely tokens"):
        connected(dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_log_probabilities_after_the_temperature_are_refused(
    fake: FakeServer, dialect: str
) -> None:
    def sharper(answer: Any) -> Any:
        if fake.requests[-1]["temperature"] == 0.5:
            entry = tops(answer)
            named = entry if "logprob" in entry[0] else entry[0]
            if isinstance(named, dict):
                named |= {name: p - 1.0 for name, p in named.items()}
            else:
                for one in named:
                    one["logprob"] -= 1.0
        return answer

    fake.change = sharper
    with pytest.raises(ModelError, match="depend on the temperature"):
        connected(dialect)


def test_another_tokenizer_is_refused(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eab.remote.checks.PROBE", "")
    fake.model = _Reversed(fake.model)  # type: ignore[assignment]
    with pytest.raises(ModelError, match="reads a text as other tokens"):
        connected("vllm")


class _Reversed:
    """A model whose tokenizer gives other ids."""

    def __init__(self, model: HuggingFaceModel) -> None:
        self.card, self._tokenizer = model.card, self

    def encode(self, text: str) -> list[int]:
        return [5, 4, 3]


def test_a_model_that_the_server_does_not_run_is_refused(fake: FakeServer) -> None:
    folder = str(Path("assets/model").resolve())
    with pytest.raises(ModelError, match="the server runs embedded, not"):
        connect("vllm", folder)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "no server is named"),
        ("127.0.0.1:9", "it must be an address"),
        ("file:///etc/passwd", "it must be an address"),
        ("http://", "it must be an address"),
        ("http://[::1", "it must be an address"),
        ("http://user:secret@127.0.0.1:9", "holds a user"),
        ("http://127.0.0.1:9", "the server cannot be reached"),
    ],
)
def test_bad_addresses_are_explained(monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    monkeypatch.setenv(operator.ADDRESS, url)
    with pytest.raises(ModelError, match=words) as caught:
        load_model("vllm:embedded")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["openai:http://127.0.0.1:9/none", "sglang:x", "http://x/y"])
def test_other_kinds_of_server_are_refused_in_words(name: str) -> None:
    with pytest.raises(ModelError, match="there is no kind of server"):
        load_model(name)


def test_the_key_goes_to_the_server_and_nowhere_else(
    fake: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = os.environ[operator.KEY]
    caplog.set_level("DEBUG")
    model = connected("vllm")
    events = list(generate(model, Request(PROMPT, CONFIG)))
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
