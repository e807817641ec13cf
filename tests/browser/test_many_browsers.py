"""A class on one server: thirty sessions at once and two real browsers beside them, on localhost.

Each asks its own prompt with its own seed and must get its own whole run: what a reload shows
equals, number for number, what the engine makes of that prompt and seed. The thirty are sessions
without the drawing (raw_session.py); thirty browsers do not fit on two cores.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
from playwright.sync_api import Page, expect
from raw_session import RawSession

from eab.board.messages import board_message
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.models.huggingface import HuggingFaceModel
from eab.run import fold

pytestmark = [pytest.mark.browser, pytest.mark.load]
SESSIONS = 30
RUNS = 4  # of each session: more than a hundred in all
PROMPTS = (
    "Once upon a time, there was a",
    "The cat sat on the",
    "One day, a girl named",
    "He opened the box and",
)
SETTINGS = {"max_paths": 8, "max_new_tokens": 10, "min_fork_weight": 0.03}
MOST_GROWTH = (
    200 * 2**20
)  # bytes from the thirtieth run to the last; a model loaded twice, or kept caches, take more


def prompt(number: int) -> str:
    return f"{PROMPTS[number % len(PROMPTS)]} {number}"


def query(number: int) -> str:
    return urlencode({"prompt": prompt(number), "seed": number, **SETTINGS})


def numbers(message: dict[str, Any]) -> dict[str, Any]:
    """What a message says of the run itself; through JSON, as the browser gets it."""
    named = ("version", "prompt", "threshold", "paths", "steps", "layout", "ended")
    return dict(json.loads(json.dumps({name: message[name] for name in named})))


def run_once(session: RawSession, number: int) -> str:
    """Press Run and watch it to its end; the run's id."""
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


@pytest.fixture(scope="module")
def expected(embedded: HuggingFaceModel) -> list[dict[str, Any]]:
    """What each session must see, made by the engine alone."""
    runs = (
        generate(embedded, Request(prompt(number), BranchingConfig(seed=number, **SETTINGS)))
        for number in range(SESSIONS)
    )  # type: ignore[arg-type]
    return [numbers(board_message(fold(events))) for events in runs]


def test_thirty_sessions_get_their_own_whole_runs(
    open_page: Callable[..., Page],
    address: str,
    server: psutil.Process,
    expected: list[dict[str, Any]],
) -> None:
    browsers = [open_page(f"/?{query(number)}") for number in (0, 1)]
    with ThreadPoolExecutor(SESSIONS) as pool:
        sessions = list(
            pool.map(lambda number: RawSession(address, query(number)), range(SESSIONS))
        )
        for page in browsers:
            page.get_by_role("button", name="Run", exact=True).click()
        ids = list(pool.map(run_once, sessions, range(SESSIONS)))
        assert len(set(ids)) == SESSIONS
        assert any("in line" in told for session in sessions for told in session.said), (
            "nobody had to wait"
        )
        after_first = server.memory_info().rss
        for number, page in enumerate(browsers):
            expect(page.locator(".eab .box.prompt")).to_contain_text(prompt(number), timeout=60_000)
            expect(page.get_by_role("tab", name="Texts")).to_be_visible(timeout=60_000)
        for _ in range(RUNS - 1):
            ids = list(pool.map(run_once, sessions, range(SESSIONS)))
        grown = server.memory_info().rss - after_first
        reloaded = list(pool.map(lambda run_id: RawSession(address, f"run={run_id}"), ids))
    assert [numbers(session.board) for session in reloaded] == expected
    assert grown < MOST_GROWTH, (
        f"{grown / 2**20:.0f} MiB more after {(RUNS - 1) * SESSIONS} further runs"
    )
    for session in (*sessions, *reloaded):
        session.close()
