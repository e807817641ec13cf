"""Records the README's animation: `make picture`.

Starts the real app and opens a bundled run in headless Chromium. The tree grows, the cursor moves
along the entropy trace, and the threshold line is dragged up and back. The result is
`assets/picture.webp`.

The page's clock is stopped and advanced one frame at a time, so the animation has the same speed on
every machine. The script uses only what users of the page see: roles, labels, keys, and the classes
of the board's pictures.
"""

import argparse
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Locator, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for scripts

from scripts.servers import serving_explorer  # noqa: E402

OUTPUT = ROOT / "assets" / "picture.webp"
MAX_BYTES = 3_000_000
EXAMPLE = "market.eab"
HIGHER_THRESHOLD = 0.9  # nats; two of the three forks of that run stay
WINDOW = {"width": 1100, "height": 640}
FRAME_MS = 80
MARGIN = 10  # pixels around the board
ANSWER_SECONDS = 0.12  # seconds per frame for the server's answer while dragging

_PAGE_STYLE = """
[data-testid="stSidebar"], [data-testid="stHeader"], .st-key-header, .st-key-status,
.st-key-below_board { display: none !important; }
.stMainBlockContainer.stMainBlockContainer { padding: 0.6rem !important; }
:root { --eab-board-height: calc(100dvh - 1.4rem) !important; }
"""
# Screenshots show no mouse pointer, so the board gets one. Dragging must not select its text.
_POINTER = """(board) => {
  board.style.outline = "none";
  const pointer = document.createElement("div");
  pointer.style.cssText =
    "position:fixed;left:0;top:0;z-index:1000;pointer-events:none;display:none";
  pointer.innerHTML = '<svg width="22" height="26" viewBox="0 0 22 26">'
    + '<path d="M2 2v19l5-5 3.5 8 3.5-1.5L10.5 15H18z" fill="#111" stroke="#fff"'
    + ' stroke-width="1.5"/></svg>';
  board.append(pointer);
  window.addEventListener("mousemove", (event) => {
    pointer.style.display = "block";
    pointer.style.transform = `translate(${event.clientX - 2}px, ${event.clientY - 2}px)`;
  }, true);
}"""


@dataclass
class Point:
    """A position in the window, in pixels."""

    x: float
    y: float

    def towards(self, other: "Point", share: float) -> "Point":
        """The point at this share of the way, slowing down at both ends."""
        eased = share * share * (3 - 2 * share)
        return Point(self.x + (other.x - self.x) * eased, self.y + (other.y - self.y) * eased)


class Recorder:
    """Advances the page's clock and keeps a picture of the board after each step."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []
        self.pointer = Point(WINDOW["width"] - 60, 420)
        self._board = page.locator(".eab")

    def wait(self, milliseconds: int, answer: float = 0.0) -> None:
        """Record this much page time; each frame gives the server `answer` real seconds."""
        for _ in range(max(1, milliseconds // FRAME_MS)):
            self.page.clock.run_for(FRAME_MS // 2)
            time.sleep(answer)
            self.page.clock.run_for(FRAME_MS // 2)
            self._keep()

    def glide(self, goal: Point, milliseconds: int, answer: float = 0.0) -> None:
        """Move the mouse to the goal within this much page time."""
        start, count = self.pointer, max(1, milliseconds // FRAME_MS)
        for index in range(1, count + 1):
            self.pointer = start.towards(goal, index / count)
            self.page.mouse.move(self.pointer.x, self.pointer.y)
            self.wait(FRAME_MS, answer)

    def _keep(self) -> None:
        data = self.page.screenshot(clip=self._area(), animations="allow", caret="hide")
        frame = Image.open(io.BytesIO(data)).convert("RGB")
        if self.frames and self.frames[-1].tobytes() == frame.tobytes():
            self.durations[-1] += FRAME_MS
        else:
            self.frames.append(frame)
            self.durations.append(FRAME_MS)

    def _area(self) -> FloatRect:
        """The board with a margin; the board moves and changes height during use."""
        box = _box(self._board)
        return FloatRect(
            x=max(0.0, box["x"] - MARGIN),
            y=max(0.0, box["y"] - MARGIN),
            width=min(box["width"] + 2 * MARGIN, WINDOW["width"]),
            height=box["height"] + 2 * MARGIN,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    parser.add_argument("--example", default=EXAMPLE, help="file name of a bundled run")
    given = parser.parse_args()
    with (
        serving_explorer(env=os.environ | {"EAB_STORE": "off"}) as (address, _),  # no saved runs
        _page(f"{address}/?example={given.example}") as page,
    ):
        recorder = _perform(page)
    _write(recorder, given.out)


def _perform(page: Page) -> Recorder:
    board = page.locator(".eab")
    page.get_by_role("combobox", name="Speed").select_option("0.5")
    board.press("Home")
    page.clock.run_for(1000)
    recorder = Recorder(page)
    recorder.wait(400)
    board.press(" ")  # play
    while board.get_attribute("data-playing") == "true":
        recorder.wait(FRAME_MS)
    recorder.wait(480)
    _scrub(recorder, page.locator("svg.entropy"))
    _drag_threshold(recorder, page.locator("svg.entropy .threshold"))
    return recorder


def _scrub(recorder: Recorder, trace: Locator) -> None:
    box = _box(trace)
    middle = box["y"] + 0.45 * box["height"]
    recorder.glide(Point(box["x"] + 0.97 * box["width"], middle), 560)
    recorder.page.mouse.down()
    recorder.glide(Point(box["x"] + 0.16 * box["width"], middle), 1360)
    recorder.wait(320)
    recorder.glide(Point(box["x"] + 0.985 * box["width"], middle), 1120)
    recorder.page.mouse.up()
    recorder.wait(400)


def _drag_threshold(recorder: Recorder, line: Locator) -> None:
    box = _box(line)
    start = Point(box["x"] + 0.6 * box["width"], box["y"] + box["height"] / 2)
    recorder.glide(start, 480)
    recorder.page.mouse.down()
    while _threshold(recorder.page) < HIGHER_THRESHOLD and recorder.pointer.y > start.y - 150:
        above = Point(start.x, recorder.pointer.y - 2)
        recorder.glide(above, FRAME_MS, ANSWER_SECONDS)
    recorder.wait(1440, ANSWER_SECONDS)
    recorder.glide(start, 800, ANSWER_SECONDS)
    recorder.page.mouse.up()
    recorder.wait(1600, ANSWER_SECONDS)


def _threshold(page: Page) -> float:
    label = page.locator(".threshold-label").text_content() or ""
    return float(re.findall(r"\d+\.\d+", label)[0])


def _write(recorder: Recorder, file: Path) -> None:
    width = max(frame.width for frame in recorder.frames)
    height = max(frame.height for frame in recorder.frames)
    canvases = []
    for frame in recorder.frames:
        canvas = Image.new("RGB", (width, height), frame.getpixel((0, 0)))
        canvas.paste(frame)
        canvases.append(canvas)
    canvases[0].save(
        file,
        save_all=True,
        append_images=canvases[1:],
        duration=recorder.durations,
        loop=0,
        lossless=True,  # smaller than lossy for flat colours and text
        quality=60,
        method=4,
    )
    size, seconds = file.stat().st_size, sum(recorder.durations) / 1000
    print(f"{file}: {width} x {height}, {seconds:.1f} s, {size / 1e6:.2f} MB")
    if size > MAX_BYTES:
        sys.exit(f"larger than {MAX_BYTES / 1e6:g} MB; record a shorter run")


@contextmanager
def _page(url: str) -> Iterator[Page]:
    """The page with a finished run, without the sidebar and with its clock stopped."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("EAB_CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = browser.new_page(viewport=WINDOW, color_scheme="light")
        # The first-visit tour would cover the picture.
        page.add_init_script("localStorage.setItem('eab-tour', 'yes')")
        page.clock.install()
        page.goto(url)
        page.locator(".eab .box.path").first.wait_for()
        page.add_style_tag(content=_PAGE_STYLE)
        page.wait_for_timeout(2500)  # the board measures itself again
        page.locator(".eab").scroll_into_view_if_needed()
        page.locator(".eab").evaluate(_POINTER)
        page.clock.pause_at(page.evaluate("Date.now()") + 1000)
        yield page
        browser.close()


def _box(part: Locator) -> FloatRect:
    box = part.bounding_box()
    if box is None:
        sys.exit(f"{part} is not on the page")
    return box


if __name__ == "__main__":
    main()
