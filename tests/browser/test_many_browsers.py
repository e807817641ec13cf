"""A class on one server: many simultaneous sessions and two real browsers, on localhost.

Each session runs its own prompt with its own seed and must get its own complete run. What a reload
shows must equal, number for number, the engine's run of that prompt and seed. The sessions speak
Streamlit's protocol without drawing (raw_session.py), because two cores cannot run thirty browsers.
Eight sessions are part of every test run; thirty are opt-in (`pytest -m load`).
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
from browser_steps import OpenPage
from playwright.sync_api import expect
from raw_session import RawSession

from eab.board.messages import board_message
from eab.engine.branching.presets import starting_config
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.run import fold

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PROMPTS = (
    "Once upon a time, there was a",
    "The cat sat on the",
    "One day, a girl named",
    "He opened the box and",
)
SETTINGS = {"max_paths": 8, "max_new_tokens": 10, "min_fork_weight": 0.03}
# Bytes from the first runs to the last. A second copy of the model, or leaked caches, take more.
MAX_GROWTH = 200 * 2**20


def prompt(number: int) -> str:
    return f"{PROMPTS[number % len(PROMPTS)]} {number}"


def query(number: int) -> str:
    return urlencode({"prompt": prompt(number), "seed": number, **SETTINGS})


def tree_of(message: dict[str, Any]) -> dict[str, Any]:
    """The texts, the shape and the KV rows of the run in a message, through JSON as in the browser.
    Probabilities are left out, since their last digits differ when other runs share the batch.
    """
    shape = ("id", "parent", "status", "finish_reason", "born")
    paths = [
        [*(path[name] for name in shape), [token[0] for token in path["tokens"]]]
        for path in message["paths"]
    ]
    rows = [[step["step"], step["paths"]] for step in message["steps"]]
    found = {name: message[name] for name in ("prompt", "threshold", "ended")}
    found["threshold"] = round(found["threshold"], 3)  # found in passes of another size
    return dict(json.loads(json.dumps(found | {"paths": paths, "rows": rows})))


def run_once(session: RawSession, number: int) -> str:
    """Press Run, watch the run until it ends, and return its id."""
    before = session.run_id
    session.press("run_button")
    session.until(lambda: session.run_id != before)
    own = f"live-{session.run_id}"
    session.until(lambda: session.board["run"] == own and bool(session.board["ended"]), seconds=240)
    session.until(lambda: "Texts" in session.tabs)
    seen = {message["prompt"] for message in session.boards if message["run"] == own}
    assert seen == {prompt(number)}, "another session's events are on this board"
    session.boards = session.boards[-1:]
    return session.run_id


def expected(model: HuggingFaceModel, number: int) -> dict[str, Any]:
    """The tree that this session must see, from a run of the engine alone."""
    config = starting_config(seed=number, kv_limit_mib=1024, **SETTINGS)
    return tree_of(board_message(fold(event_stream(model, Request(prompt(number), config)))))


@pytest.mark.parametrize(
    ("count", "runs_each", "some_wait"),  # the server runs eight at a time
    [
        pytest.param(8, 2, False, id="8-sessions"),
        pytest.param(30, 4, True, marks=pytest.mark.load, id="30-sessions"),
    ],
)
def test_simultaneous_sessions_each_get_their_own_complete_run(
    open_page: OpenPage,
    address: str,
    server: psutil.Process,
    embedded: HuggingFaceModel,
    count: int,
    runs_each: int,
    some_wait: bool,
) -> None:
    everyone = range(count)
    browsers = [open_page(f"/?{query(number)}") for number in (0, 1)]
    with ThreadPoolExecutor(count) as pool:
        sessions = list(pool.map(lambda number: RawSession(address, query(number)), everyone))
        for page in browsers:
            page.get_by_role("button", name="Run", exact=True).click()
        ids = list(pool.map(run_once, sessions, everyone))
        assert len(set(ids)) == count
        if some_wait:
            texts = [text for session in sessions for text in session.progress]
            assert any(text.startswith("Waiting") for text in texts), "nobody had to wait"
        after_first = server.memory_info().rss
        for number, page in enumerate(browsers):
            expect(page.locator(".eab .box.prompt")).to_have_attribute(
                "aria-label", re.compile(re.escape(prompt(number)))
            )
            expect(page.get_by_role("tab", name="Texts")).to_be_visible()
        for _ in range(runs_each - 1):
            ids = list(pool.map(run_once, sessions, everyone))
        grown = server.memory_info().rss - after_first
        reloaded = list(pool.map(lambda run_id: RawSession(address, f"run={run_id}"), ids))
    for number, session in enumerate(reloaded):
        shown, whole = tree_of(session.board), expected(embedded, number)
        for name, value in whole.items():
            assert shown[name] == value, f"{name} of session {number}"
    assert grown < MAX_GROWTH, (
        f"{grown / 2**20:.0f} MiB more after {(runs_each - 1) * count} further runs"
    )
    for session in (*sessions, *reloaded):
        session.close()


ONE_RUN = urlencode(
    {"prompt": "Once upon a time", "max_new_tokens": 40, "max_paths": 6, "min_fork_weight": 0.03}
)


def test_a_poll_for_a_fragment_of_the_previous_page_is_ignored(address: str) -> None:
    session = RawSession(address, ONE_RUN)
    for _ in range(2):
        before = session.run_id
        session.press("run_button")
        session.until(lambda before=before: session.run_id != before)
        session.until(
            lambda: (
                bool(session.board["ended"]) and session.board["run"] == f"live-{session.run_id}"
            )
        )
        session.until(lambda: "Texts" in session.tabs)
    assert len(session.polled) > 1
    assert len(set(session.polled)) == len(session.polled), "a new name on each drawing"
    drawn = session.finished
    for name in session.polled:
        session.poll(name)
    session.press("stop_button")  # does nothing, but reruns the page
    session.until(lambda: session.finished > drawn)
    session.close()
    assert session.finished == drawn + 1
