"""A poll that was sent before the browser had the new page (without a browser: raw_session.py)."""

from urllib.parse import urlencode

import pytest
from raw_session import RawSession

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RUN = urlencode(
    {"prompt": "Once upon a time", "max_new_tokens": 40, "max_paths": 6, "min_fork_weight": 0.03}
)


def test_a_late_poll_finds_nothing(address: str) -> None:
    session = RawSession(address, RUN)
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
    session.press("stop_button")  # does nothing, but draws the page
    session.until(lambda: session.finished > drawn)
    session.close()
    assert session.finished == drawn + 1
