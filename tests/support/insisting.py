"""Act on a page as a person does: where nothing happens, once more; and where on it things are, and
whether they move.
"""

import time
from collections.abc import Callable

from playwright.sync_api import FloatRect, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

_WATCH_SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      window.shifts.push(entry.sources.map(({ node, previousRect, currentRect }) =>
        [(node?.closest?.("[class*=st-key]") ?? node)?.className, previousRect.toJSON(), currentRect.toJSON()]));
    }
  }).observe({ type: "layout-shift" });
}"""

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


def watch_shifts(page: Page) -> None:
    """From now on, what moves by itself is in the list `shifts` of the page."""
    page.evaluate(_WATCH_SHIFTS)


def overlap(one: FloatRect, other: FloatRect) -> float:
    """How far two boxes lie over each other, in px across or down; not at all if it is below 0."""
    across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
    down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
    return min(across, down)
