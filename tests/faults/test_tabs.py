"""Tabs that are closed, disconnected or duplicated during a run: the run continues or ends as it
should, the next one works, and the log stays empty (without a browser: raw_session.py).
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from raw_session import RawSession

from scripts.servers import free_port, serve_command, serving_explorer

pytestmark = pytest.mark.slow

PROMPT = "Once upon a time, there was a"
LONG = {"prompt": PROMPT, "seed": 1, "max_new_tokens": 60, "max_paths": 16, "min_fork_weight": 0.01}
ENDLESS = LONG | {"max_new_tokens": 256, "max_paths": 64, "cache": "recompute"}
UNWATCHED = 5.0  # seconds without a viewer after which a run is stopped, instead of two minutes
IMPATIENT = (
    f"from app.server import tasks; tasks.UNWATCHED_SECONDS = {UNWATCHED};"
    "from app.serve import main; main()"
)


@contextmanager
def logging_server(folder: Path, *command: str) -> Iterator[str]:
    """Start a server and yield its address; it must log no error."""
    log, port = folder / "log", free_port()
    started = [*command, *serve_command(port)[-2:]] if command else serve_command(port)
    with (
        log.open("wb") as written,
        serving_explorer(started, port, stdout=written, stderr=written) as found,
    ):
        yield found[0]
    logged = log.read_text(encoding="utf-8")
    assert re.findall("Traceback.*|.*Error.*|.*stopped with.*", logged) == []
    assert PROMPT not in logged


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with logging_server(tmp_path_factory.mktemp("server")) as found:
        yield found


def begun(address: str, settings: dict[str, Any]) -> RawSession:
    """Open a tab and start a run that grows."""
    tab = RawSession(address, urlencode(settings))
    run(tab)
    return tab


def run(tab: RawSession) -> None:
    """Press Run, and wait until the new run is on the board."""
    before = tab.run_id
    tab.until(lambda: tab.offers("run_button"))
    tab.press("run_button")
    tab.until(lambda: tab.run_id != before)
    tab.until(lambda: tab.board["run"] == f"live-{tab.run_id}" and tab.board["version"] > 0)


def ending(tab: RawSession) -> str:
    """Return how the run in the address bar ends."""
    tab.until(lambda: tab.board["run"] == f"live-{tab.run_id}" and bool(tab.board["ended"]))
    tab.until(lambda: "Texts" in tab.tabs)  # the page has been redrawn
    return str(tab.board["ended"])


def test_a_cut_connection_comes_back_to_the_same_tab_and_its_run(address: str) -> None:
    tab = begun(address, LONG)
    run_id, session = tab.run_id, tab.session
    for _ in range(3):
        tab.cut()
        seen = len(tab.boards)
        tab.come_back()
        tab.until(lambda seen=seen: len(tab.boards) > seen)
    assert (tab.run_id, tab.session) == (run_id, session)
    assert ending(tab) == "finished"
    run(tab)
    assert ending(tab) == "finished"
    tab.close()


def test_tabs_of_one_link_see_the_same_run_after_the_first_one_is_closed(address: str) -> None:
    first = begun(address, LONG)
    second, third = (RawSession(address, f"run={first.run_id}") for _ in range(2))
    first.close()
    assert [ending(second), ending(third)] == ["finished"] * 2
    whole = RawSession(address, f"run={first.run_id}").board
    for tab in (second, third):
        assert tab.board["run"] == whole["run"]
        assert len(tab.board["steps"]) > 0
        assert tab.board["steps"][-1] == whole["steps"][-1]
        run(tab)
    assert second.run_id != third.run_id
    assert [ending(second), ending(third)] == ["finished"] * 2
    for tab in (second, third):
        tab.close()


def test_stop_in_one_of_two_tabs_ends_the_run_in_both(address: str) -> None:
    first = begun(address, ENDLESS)
    second = RawSession(address, f"run={first.run_id}")
    second.press("stop_button")
    assert [ending(first), ending(second)] == ["stopped"] * 2
    for tab in (first, second):
        tab.close()


def test_a_run_ends_after_its_browser_is_closed_and_the_next_visitor_is_served(
    tmp_path: Path,
) -> None:
    with logging_server(tmp_path, sys.executable, "-c", IMPATIENT) as address:
        tab = begun(address, ENDLESS)
        tab.close()
        time.sleep(UNWATCHED + 10)  # a later visitor would keep it alive
        later = RawSession(address, f"run={tab.run_id}")
        assert ending(later) == "unwatched"
        assert 0 < len(later.board["steps"]) < ENDLESS["max_new_tokens"]
        later.close()
        other = begun(address, LONG)
        other.until(lambda: bool(other.board["ended"]))
        other.close()
