"""What cannot be opened or run is explained, at any address; the page stays as it was and works."""

import gzip
import json
import re
from typing import Any

import pytest
from page_walk import Tab, opened
from places import ROOT
from strange_runs import LINES

import eab
from eab.run import record


@pytest.fixture
def page() -> Tab:
    return opened().remember(open_run=True)


def with_start(**changes: Any) -> bytes:
    """The file of the recording with these values in its RunStarted."""
    started = json.loads(LINES[1])
    started |= changes | {"config": started["config"] | changes.get("config", {})}
    return gzip.compress("\n".join([LINES[0], json.dumps(started), *LINES[2:]]).encode("ascii"))


def test_a_file_that_cannot_be_opened_is_explained(page: Tab) -> None:
    files = (
        (b"no run", "is not a run file"),
        (with_start(config={"policy": "\ud800x"}), "the setting policy is 'ud800x'"),
        (with_start(prompt="w" * 30_000_000), "more than 8,388,608 bytes in one line"),
    )
    for data, why in files:
        page.put(upload=("strange.eab", data, ""))
        assert why in page.errors[0]
        assert page.boards
        page.run()  # the message stays, and so does the page
        assert why in page.errors[0]


def test_the_longest_prompt_that_a_file_may_hold_is_shown(page: Tab) -> None:
    data = with_start(prompt="w" * 200_000)
    page.put(upload=("long.eab", data, ""))
    assert not page.error
    assert len(page.value("prompt")) == 200_000


def test_a_truncated_file_is_shown_up_to_its_last_step_and_reported_as_truncated(page: Tab) -> None:
    whole = gzip.compress("\n".join(LINES).encode("ascii"))
    page.put(upload=("whole.eab", whole, ""))
    assert "breaks off" not in page.captions
    page.remember(open_run=True).put(upload=("cut.eab", whole[: len(whole) * 2 // 3], ""))
    assert not page.error
    assert page.boards
    assert "Opened from a file. It breaks off after " in page.captions
    page.put(set_temperature=0.5)
    assert page.status.startswith("Changed since this run: temperature ")
    assert "Press Run to apply. It breaks off after " in page.status


def test_an_imported_run_is_shown_without_what_needs_its_model(page: Tab) -> None:
    sample = {"text": " Paris.", "tokens": [" Paris", "."], "logprobs": [-0.5, None]}
    samples = [sample, {"text": " Lyon", "label": "**no**"}, {"text": " Nice", "reward": 1}]
    run = eab.from_samples(samples, "The capital of France is")
    page.put(upload=("samples.eab", record.dumps(run.events), ""))
    assert not page.error
    offers = page.board["offers"]
    assert not any(offers[name] for name in ("grow", "go_on", "what_if", "run_at"))
    assert page.board["sentences"]["tree"].startswith("3 imported samples: 1 fork")
    assert len(page.board["steps"]) == len(run.steps)
    for name in ("Texts", "Answers", "Tokens", "Performance", "Export"):
        page.remember(results=name).run()
        assert not page.error, name
        if name == "Texts":  # a label is a stranger's text
            assert set(page.table[0].value["reward"]) == {"", r"1\.0", r"\*\*no\*\*"}


START_AND_STOP = {
    "explore": ("run_button", "stop_button"),
    "memory": ("run_button", "stop_button"),
    "speculative": ("run_button", "stop_button"),
    "bmc": ("run_sizes", "bmc_stop"),
    "batching": ("batching_start", "batching_stop"),
    "tune": ("tune_start", "tune_stop"),
    "quantization": ("formats_run", "formats_stop"),
}


def shown(page: Tab) -> tuple[list[str], list[object]]:
    """The sentences on a page and the trees of its boards."""
    return page.words, [board["paths"] for board in page.boards]


def refused(page: Tab, name: str) -> str:
    """Press the Start button of this page and return its errors; the rest must not change."""
    start, stop = START_AND_STOP[name]
    before = shown(page)
    page.press(start).run_to_its_end(stop)
    assert shown(page) == before
    return " ".join(page.errors)


@pytest.mark.parametrize("name", ["explore", "memory", "speculative", "bmc", "batching", "tune"])
def test_a_model_that_cannot_be_loaded_is_explained(name: str) -> None:
    page = opened(name, **{"experiment": "sizes"} if name == "bmc" else {})
    page.put(set_model_kind="Other").put(set_model_other="./no_such_folder")
    assert "there is no such folder" in refused(page, name)


@pytest.mark.parametrize(
    ("name", "prompt", "why"),
    [
        ("explore", "   ", "the prompt is empty"),
        ("explore", "word " * 2000, "Shorten the prompt"),
        ("memory", "   ", "the prompt is empty"),
        ("speculative", "   ", "the prompt is empty"),
        ("quantization", " ", "the prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_explained(name: str, prompt: str, why: str) -> None:
    key = "formats_prompt" if name == "quantization" else "prompt"
    assert why in refused(opened(name).put(**{key: prompt}), name)


PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("app", "pages")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
PARAMETERS = [
    *("class", "lecture", "lesson", "stage", "a", "b", "view", "experiment"),
    *("saved", "example", "model", "prompt", "seed", "cursor", "policy", "threshold_unit"),
    *re.findall(r'Slot\(\s*"(\w+)"', CODE),
]
VALUES = ["../../etc/passwd", "9" * 5000, "<script>\x00'\"", "-0.0", "٣", "\ufffe\U0001f642"]


@pytest.mark.parametrize(("shift", "page"), [*enumerate(PAGES)])  # each page gets every value
def test_every_page_opens_at_any_address(shift: int, page: str) -> None:
    query = {name: VALUES[(number + shift) % len(VALUES)] for number, name in enumerate(PARAMETERS)}
    tab = opened(page, **query)
    assert all(len(message.value) < 2000 for message in tab.error)
