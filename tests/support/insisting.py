"""Act on a page as a person does: where nothing happens, once more."""

import time
from collections.abc import Callable

from playwright.sync_api import FloatRect, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

OpenPage = Callable[..., Page]  # the fixture open_page, see tests/browser/conftest.py


def until_attached(act: Callable[[], object], seen: Locator, seconds: float = 30) -> None:
    """Act until something is in the page: a picture that was being laid out takes no pointer.

    Args:
        act: What a person does; doing it again must not undo it.
        seen: What it brings up.
        seconds: How long to try.

    Raises:
        AssertionError: It never came.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        act()
        try:
            seen.wait_for(state="attached", timeout=2_000)
            return
        except PlaywrightTimeout:
            continue
    expect(seen).to_be_attached(timeout=1)


def box_of(drawn: Locator, seconds: float = 30) -> FloatRect:
    """Where something is on the page, in px; a picture may be drawn anew while it is asked.

    Raises:
        AssertionError: It has no place.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        box = drawn.bounding_box()
        if box is not None:
            return box
    raise AssertionError(f"{drawn} has no place on the page")
