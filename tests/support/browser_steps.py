"""Act on a page as a person does, who tries again if nothing happens. Also: where elements are on
the page, and whether they move.
"""

from collections.abc import Callable
from contextlib import suppress

from playwright.sync_api import FloatRect, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from waiting import wait_until

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

OpenPage = Callable[..., Page]  # the type of fixture open_page, see tests/browser/conftest.py


def until_attached(act: Callable[[], object], seen: Locator) -> None:
    """Repeat an action until it brings up an element; a chart ignores the pointer during its
    layout. A repetition must not undo the action.
    """

    def appears() -> bool:
        act()
        with suppress(PlaywrightTimeout):
            seen.wait_for(state="attached", timeout=2_000)
            return True
        return False

    wait_until(appears, 30)


def box_of(drawn: Locator) -> FloatRect:
    """The box of an element on the page, in px. Tries again if the element is just being redrawn."""
    return wait_until(drawn.bounding_box, 30)  # type: ignore[return-value]


def cursor_is(page: Page, step: int) -> None:
    expect(page.locator(".eab")).to_have_attribute("data-cursor", str(step))


def watch_shifts(page: Page) -> None:
    """From now on, record what moves by itself in the list `shifts` of the page."""
    page.evaluate(_WATCH_SHIFTS)


def overlap(one: FloatRect, other: FloatRect) -> float:
    """The overlap of two boxes in px, across or down, whichever is less; negative if apart."""
    across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
    down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
    return min(across, down)
