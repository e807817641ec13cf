"""Answers that no correct server gives, and runs on a server that gives them."""

from collections.abc import Callable
from typing import Any

from fake_server import Tops

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.remote.model import RemoteModel, connect
from eab.engine.request import Request
from eab.run import fold
from eab.run.events import Event, Pause, RunEnded

VOCAB_SIZE = 4096  # of the embedded model that the servers run; so this token does not exist
PROMPT = "Once upon a time"
CONFIG = BranchingConfig(top_k=20, max_new_tokens=4, max_paths=3)
DIALECTS = ("llama.cpp", "vllm")


def first(entries: Any) -> Any:
    """The part of an answer for the first text, in either dialect."""
    return entries[0] if isinstance(entries, list) else entries["choices"][0]


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


def no_probability(tops: Tops) -> None:
    tops[0][next(iter(tops[0]))] = 0.5


def too_sure(tops: Tops) -> None:
    tops[0] |= dict.fromkeys([*tops[0]][:3], -0.1)


def unknown_token(tops: Tops) -> None:
    (_, highest), *others = tops[0].items()
    tops[0] = {VOCAB_SIZE: highest, **dict(others)}


def too_few(tops: Tops) -> None:
    tops[0] = dict([*tops[0].items()][:5])


def two_of_one(answer: Any) -> None:
    first(answer)["index"] = 7


def renamed(answer: Any) -> None:
    for entry in answer if isinstance(answer, list) else [answer]:
        entry["model"] = "another"


BAD_ANSWERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "half an answer": (drop_last, "continuation"),
    "without numbers": (mangled(without_numbers), "cannot be used"),
    "wrong index": (mangled(two_of_one), "continuation is missing"),
    "another name": (mangled(renamed), "another model has answered"),
    "a list of nothing": (lambda _: [None], "cannot be used"),
    "a number": (lambda _: 3, "cannot be used"),
    "an object": (lambda _: {}, "cannot be used"),
    "nothing": (lambda _: None, "cannot be used"),
}
BAD_NUMBERS: dict[str, tuple[Callable[[Tops], None], str]] = {
    "above 1": (no_probability, "log-probability is 0.5"),
    "sum above 1": (too_sure, "add up to more than 1"),
    "unknown token": (unknown_token, "token that the model does not have"),
    "too few": (too_few, "returns 5 tokens, but 20 were requested"),
}


def connected(dialect: str, seconds: float = 20.0) -> RemoteModel:
    return connect(dialect, "embedded", seconds)


def run_until_failed(model: RemoteModel, spoil: Callable[[], None]) -> tuple[list[Event], str]:
    """The events and the error of a run; `spoil` breaks its server after the second step."""
    events: list[Event] = []
    for event in event_stream(model, Request(PROMPT, CONFIG)):
        events.append(event)
        if isinstance(event, Pause) and sum(isinstance(one, Pause) for one in events) == 2:
            spoil()
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.reason == "failed"
    run = fold(events)
    assert len(run.steps) >= 2
    assert run.samples
    return events, ended.message


def run_until_failed_at_once(model: RemoteModel) -> tuple[list[Event], str]:
    events = list(event_stream(model, Request(PROMPT, CONFIG)))
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "failed"
    return events, events[-1].message
