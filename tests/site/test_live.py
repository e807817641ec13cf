"""The live model of the page makes the tree that Python makes: in Node, and its worker in Chromium."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

import eab
from eab.branching.random_streams import Purpose, child_stream_key, pruning_uniform, uniform
from eab.caches.tree import TreeCache
from eab.engine.continuing import continue_from
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.events import Event, PathFinished, RunStarted, StepTimed
from eab.models.base import LanguageModel
from eab.record.run_file import decode
from eab.run import fold
from eab.site.weights import write_model

Ask = Callable[..., Any]
ERROR = 2e-4  # of an entropy or ln p: Python's sums are float32
PROMPTS = (
    *("Once upon a time, there was a little", "Grandma went to the market and bought some"),
    *("The dog", "Tom and Sue were", "One day, 3 birds found 12 seeds.", "“Hello!” said the"),
    *("The cat couldn't", "Lily saw a   big\n\ntree", "She was very sad because", "é 日本 🎈 the"),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "wide", "seed": 1, "r": 1},
    {"preset": "focused", "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 24},
    {"entropy_threshold": 0.4, "max_paths": 5, "min_fork_weight": 0.0, "seed": 2, "r": 64},
    {"entropy_threshold": 0.1, "threshold_unit": "normalised", "temperature": 0.9, "seed": 3},
    {"entropy_threshold": 1.0, "temperature": 1.2, "branch_min_p": 0.0, "max_paths": 20, "r": 7},
)
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("live")
    write_model(made)
    return made


@pytest.fixture(scope="module")
def ask(folder: Path) -> Iterator[Ask]:
    """Ask the JavaScript, in one process of Node."""
    if NODE is None:
        pytest.skip("no Node on this machine (install Node.js 20 or newer)")
    script = Path(__file__).with_name("live_runs.mjs")
    node = subprocess.Popen(
        [NODE, str(script), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert node.stdin is not None
    assert node.stdout is not None

    def answer(what: str, **more: Any) -> Any:
        node.stdin.write(json.dumps({"what": what, **more}).encode() + b"\n")
        node.stdin.flush()
        said = json.loads(node.stdout.readline())
        if "error" in said:
            raise ValueError(said["error"])
        return said["value"]

    yield answer
    node.stdin.close()
    node.stdout.close()
    node.wait()


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return eab.load_model("embedded")


def events_of(lines: list[dict[str, Any]]) -> list[Event]:
    """As a run file would hold them."""
    return [decode(json.dumps(line).encode()) for line in lines]


def without_times(events: list[Event]) -> list[Any]:
    """Plain values; the layout of the weights in memory is Python's own."""
    same: list[Any] = []
    for event in events:
        if isinstance(event, StepTimed):
            event = StepTimed(event.step, event.tokens, 0.0, 0.0)
        if isinstance(event, RunStarted):
            event = msgspec.structs.replace(
                event, model=msgspec.structs.replace(event.model, layout="plain")
            )
        same.append(msgspec.to_builtins(event))
    return same


def differs(one: Any, other: Any, place: str = "") -> str:
    """Where two plain values differ by more than rounding; empty if nowhere."""
    if isinstance(one, float) and isinstance(other, float):
        return "" if abs(one - other) <= ERROR else f"{place}: {one} is not {other}"
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{place}: {one.keys() ^ other.keys()}"
        pairs = [(name, one[name], other[name]) for name in one]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{place}: {one} is not {other}"
        pairs = [(str(at), *pair) for at, pair in enumerate(zip(one, other, strict=True))]
    else:
        return "" if one == other else f"{place}: {one!r} is not {other!r}"
    found = (differs(first, second, f"{place}.{name}") for name, first, second in pairs)
    return next((each for each in found if each), "")


def assert_same(found: list[Event], expected: list[Event]) -> None:
    assert differs(without_times(found), without_times(expected)) == ""


@pytest.mark.parametrize("given_settings", SETTINGS, ids=str)
def test_the_same_tree_as_in_python(
    ask: Ask, model: LanguageModel, given_settings: dict[str, Any]
) -> None:
    ended = 0
    for number, prompt in enumerate(PROMPTS):
        chosen = {"seed": number, **given_settings}
        expected = list(event_stream(model, Request(prompt, eab.starting_config(**chosen))))
        assert_same(events_of(ask("run", prompt=prompt, settings=chosen)), expected)
        ended += sum(isinstance(event, PathFinished) for event in expected)
    assert ended > len(PROMPTS)  # there were forks
