"""The live model of the page, in Node: the same numbers, tokens and trees as in Python."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

import eab
from eab.engine.branching.random_streams import Purpose, child_stream_key, pruning_uniform, uniform
from eab.engine.caches.tree import TreeCache
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.request import Request, continue_from
from eab.run import fold
from eab.run.events import Event, Forked, Reweighted, RowsAllocated
from eab.run.record.run_file import decode
from eab.share.live import model_files

Ask = Callable[..., Any]
ERROR = 2e-4  # of an entropy or ln p: Python's sums are float32
ROUNDING = 3e-5  # of a logit
TRIES = 60  # of noise, until all decisions of a run are those of Python
PROMPTS = (
    *("Once upon a time, there was a little", "Grandma went to the market and bought some"),
    *("One day, 3 birds found 12 seeds.", "“Hello!” said the", "Lily saw a   big\n\ntree. é 🎈"),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "wide", "seed": 1, "r": 1},
    {"preset": "focused", "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 24},
    {"entropy_threshold": 0.4, "max_paths": 5, "min_fork_weight": 0.0, "seed": 2, "r": 64},
    {"entropy_threshold": 0.1, "threshold_unit": "normalised", "temperature": 0.9, "seed": 3},
    {"entropy_threshold": 1.0, "temperature": 1.2, "branch_min_p": 0.0, "max_paths": 20, "r": 7},
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Ask the JavaScript, in one process of Node."""
    program, folder = shutil.which("node"), tmp_path_factory.mktemp("live")
    if program is None:
        pytest.skip("no Node on this machine (install Node.js 20 or newer)")
    for name, data in model_files().items():
        (folder / name).write_bytes(data)
    command = [program, str(Path(__file__).with_name("live_runs.mjs")), str(folder)]
    node: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def answer(what: str, **more: Any) -> Any:
        node.stdin.write(json.dumps({"what": what, **more}).encode() + b"\n")
        node.stdin.flush()
        said = json.loads(node.stdout.readline())
        if "error" in said:
            raise ValueError(said["error"])
        return said["value"]

    yield answer
    node.communicate()


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return eab.load_model("embedded")


def events_of(lines: list[dict[str, Any]]) -> list[Event]:
    """As a run file would hold them."""
    return [decode(json.dumps(line).encode()) for line in lines]


def plain(events: list[Event]) -> list[Any]:
    """Plain values without what may differ: times, and the layout of the weights in memory. The
    final weights stand for their changes, some of which are only rounding.
    """
    same = [msgspec.to_builtins(event) for event in events if not isinstance(event, Reweighted)]
    for event in same:
        if event["event"] == "StepTimed":
            for name in ("seconds", "forward_seconds", "draft_seconds"):
                event.pop(name, None)
        if event["event"] == "RunStarted":
            event["model"].pop("layout", None)
    return [*same, [path.weight for path in fold(events).paths]]


def differs(one: Any, other: Any) -> bool:
    """Whether two plain values differ by more than rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > ERROR
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() != other.keys() or any(differs(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) != len(other) or any(map(differs, one, other))
    return bool(one != other)


def first_difference(found: list[Event], expected: list[Event]) -> int | None:
    one, other = plain(found), plain(expected)
    if len(one) == len(other) and not differs(one, other):
        return None
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if differs(*pair)), -1)


def settings_of(chosen: dict[str, Any]) -> dict[str, Any]:
    """All settings of a run, as the page knows them."""
    settings: dict[str, Any] = msgspec.to_builtins(eab.starting_config(**chosen))
    return settings


def is_same(answer: list[tuple[int, Any]], expected: list[Event]) -> bool:
    return first_difference(events_of([line for _, line in answer]), expected) is None


def becomes_same(ask: Ask, prompt: str, chosen: dict[str, Any], expected: list[Event]) -> bool:
    """Whether it is Python's tree with noise as small as rounding in the passes where rounding
    decides. A pass before which all events are Python's gets other noise until its events are, too.
    """
    noise: list[int] = []  # a seed for each pass through the model, 0 for none
    for seed in range(1, TRIES):
        asked = {"prompt": prompt, "settings": settings_of(chosen)}
        answer = ask("run", **asked, noise=noise, rounding=ROUNDING)
        found = events_of([line for _, line in answer])
        at = first_difference(found, expected)
        if at is None:
            return True
        passes = [
            number
            for (number, _), event in zip(answer, found, strict=True)
            if not isinstance(event, Reweighted)
        ]
        decided = passes[min(at, len(passes) - 1)]
        noise = [*(noise + [0] * decided)[:decided], seed * 7919]
    return False


@pytest.mark.parametrize(
    "chosen",
    [pytest.param(each, marks=[pytest.mark.slow] * bool(each)) for each in SETTINGS],
    ids=str,
)
def test_the_same_tree_as_in_python(ask: Ask, model: LanguageModel, chosen: dict[str, Any]) -> None:
    forks = 0
    for prompt in PROMPTS:
        request = Request(prompt, eab.starting_config(**chosen))
        expected = list(event_stream(model, request))
        forks += sum(isinstance(event, Forked) for event in expected)
        assert becomes_same(ask, prompt, chosen, expected), prompt
    assert forks > len(PROMPTS)


def test_a_run_grows_from_a_token(ask: Ask, model: LanguageModel) -> None:
    config = eab.starting_config(max_new_tokens=12)
    run = fold(event_stream(model, Request(PROMPTS[0], config)))
    fork = next(path for path in run.paths if path.children)
    continued = run.continuation(fork.children[0], run.tokens_before(fork.children[0]), 1)
    request = continue_from(model, run.started, continued, config)
    found = ask(
        "run",
        prompt=run.started.prompt,
        tokenIds=run.started.own_tokens,
        continued=continued,
        settings={"max_new_tokens": 12},
    )
    assert is_same(found, list(event_stream(model, request)))


@pytest.mark.slow
def test_tensors_that_paths_left_are_compacted(ask: Ask, model: LanguageModel) -> None:
    chosen = {"entropy_threshold": 0.1, "min_fork_weight": 0.0, "branch_min_p": 0.0, "r": 30}
    chosen |= {"max_paths": 60, "max_new_tokens": 100, "temperature": 1.0, "top_p": 1.0}
    expected = list(event_stream(model, Request(PROMPTS[1], eab.starting_config(**chosen))))
    sizes = [event.growth.rows for event in expected if isinstance(event, RowsAllocated)]
    assert any(later < before for before, later in pairwise(sizes))
    assert becomes_same(ask, PROMPTS[1], chosen, expected)


@tried(max_examples=300)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_texts_have_the_same_tokens(ask: Ask, model: LanguageModel, text: str) -> None:
    if text:
        assert ask("encode", texts=[text]) == [[*model.encode(text)]]


def test_texts_of_many_kinds_have_the_same_tokens(ask: Ask, model: LanguageModel) -> None:
    texts = [
        *("I'll, we've; it's DON'T can't", "x=1234.5, ²½Ⅳ٣", "tabs\t\tand\r\n\n  lines \n", "   "),
        *(
            "<|endoftext|>Once",
            "a<|endoftext|>b <|endoftext|> c",
            "<|endo",
            "\x85\ufeff\u200b\u3000 a",
        ),
        *(
            "naïve café e\u0301",
            "日本語のテキスト",
            "👩‍👩‍👧 🇫🇷 🎈",
            "مرحبا بالعالم",
            "नमस्ते दुनिया",
            "a" * 300,
        ),
        *(Path(__file__).read_text(encoding="utf-8"), "\0\x01\x7f"),
    ]
    assert ask("encode", texts=texts) == [[*model.encode(text)] for text in texts]
    known = [model.text(token) for token in range(model.card.vocab_size)]
    assert ask("texts") == known


@given(
    of=st.lists(
        st.tuples(
            *(st.integers(0, 2**53 - 1), st.integers(0, 2**64 - 1)),
            *(st.integers(0, 511), st.integers(0, 4095)),
        )
    )
)
@tried(max_examples=50)
def test_random_numbers_are_the_same(ask: Ask, of: list[tuple[int, int, int, int]]) -> None:
    expected = [
        [
            uniform(seed, key, step, Purpose.TOKEN, number),
            pruning_uniform(seed, step),
            str(child_stream_key(key, step, number)),
        ]
        for seed, key, step, number in of
    ]
    asked = [[seed, str(key), step, number] for seed, key, step, number in of]
    assert ask("draws", of=asked) == expected


@pytest.mark.parametrize("length", [1, 7, 500])
def test_logits_are_close(ask: Ask, model: LanguageModel, length: int) -> None:
    ids = [(7 + 31 * index) % 4096 for index in range(length)]
    found = torch.tensor(ask("logits", ids=ids), dtype=torch.float64)
    batch = TreeCache(model.kv_shape, "auto", 2**30).prepare([0], [ids])
    with torch.inference_mode():
        expected = model.forward([batch])[0].double()
    assert (found - expected).abs().max() < ROUNDING


@pytest.mark.parametrize(
    ("prompt", "more", "says"),
    [
        ("", {}, "the prompt is empty; write a few words"),
        ("\ud800", {}, "the prompt is not valid text"),
        ("so " * 500, {}, "has 502 tokens, but the story model reads at most 464.* Shorten it"),
        ("a" * 100_000, {}, "the prompt is longer than what the story model reads, 512"),
        ("Once", {"continued": [9] * 500}, "reads at most 464.* Grow from an earlier token"),
        ("Once", {"continued": [9, 0]}, "that token ends the text"),
    ],
)
def test_what_cannot_run_is_said(ask: Ask, prompt: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ask("run", prompt=prompt, settings={}, **more)
