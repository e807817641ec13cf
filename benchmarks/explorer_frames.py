"""Frame times of the board with large runs, for explorer.py: it scrubs and zooms exported pages in
a headless Chromium.

A frame lasts from the input event until the requested picture is drawn. Runs of 400 tokens are made
by the embedded model. Its context is too short for 2,000 tokens, so those runs are invented
(tests/support/invented_runs.py).
"""

import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from eab import EntropyAdaptiveBranching
from eab.events import Event
from eab.record import load, save
from eab.share.html_page import save_html

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from invented_runs import invented_run


class Size(NamedTuple):
    """The size of a run, and the target for the 95th percentile of its frame times."""

    paths: int
    tokens: int
    goal_ms: float

    def __str__(self) -> str:
        return f"{self.paths}_{self.tokens}"


SIZES: Final = (Size(64, 400, 33), Size(256, 400, 60))
LONG: Final = (Size(8, 2000, 33), Size(64, 2000, 60))
VIEWPORT: Final = {"width": 1366, "height": 768}
_CONTEXT: Final = 500  # new tokens that fit the embedded model's context

_WATCH: Final = """window.firstPicture = null; const look = () => {
  if (!document.querySelector('.eab .box.path')) return requestAnimationFrame(look);
  requestAnimationFrame(() => setTimeout(() => { window.firstPicture = performance.now(); })); };
look();"""
_FRAME: Final = """const frame = async (act) => { const start = performance.now(); act();
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  times.push(performance.now() - start);
  most = Math.max(most, document.querySelectorAll('*').length); };
const times = []; let most = 0;"""
# Half of the frames move step by step, the other half jump around.
_SCRUB: Final = f"""async (count) => {{ {_FRAME}
  const slider = document.querySelector('.eab .transport input[type=range]');
  const last = Number(slider.max);
  for (let at = 0; at < count; at += 1) {{
    const step = at % 2 ? Math.floor((last * ((at * 37) % 101)) / 101) : Math.floor(last / 2 + at / 4);
    await frame(() => {{ slider.value = step; slider.dispatchEvent(new Event('input', {{ bubbles: true }})); }});
  }} return {{ times, most }}; }}"""
_ZOOM: Final = f"""async (count) => {{ {_FRAME}
  const tree = document.querySelector('.eab svg.tree');
  for (let at = 0; at < count; at += 1) {{
    const deltaY = at % 40 < 20 ? -100 : 100;
    const wheel = {{ deltaY, ctrlKey: true, cancelable: true, bubbles: true }};
    await frame(() => tree.dispatchEvent(new WheelEvent('wheel', wheel)));
  }} return {{ times, most }}; }}"""


def events_of(size: Size, folder: Path) -> list[Event]:
    """A run of this size: invented, loaded from the folder, or made and saved there."""
    if size.tokens > _CONTEXT:
        return invented_run(5, size.tokens, size.paths)
    file = folder / f"{size}.eab"
    if not file.exists():
        engine = EntropyAdaptiveBranching("embedded")
        settings: dict[str, Any] = {"max_paths": size.paths, "max_new_tokens": size.tokens}
        run = engine.run(
            "Once upon a time", entropy_threshold=0.65, seed=1, kv_limit_mib=8192, **settings
        )
        save(run.events, file)
    return load(file)


@contextmanager
def _browser(chromium: str | None) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def _look_at(page: Page, file: Path, frames: int) -> dict[str, Any]:
    """Open an exported page, scrub through it and zoom."""
    page.add_init_script(_WATCH)
    page.goto(file.as_uri())
    page.wait_for_function("window.firstPicture", timeout=120_000)
    first = float(page.evaluate("window.firstPicture"))
    page.evaluate(_SCRUB, 10)  # this stops the automatic replay
    page.wait_for_timeout(500)
    scrubbed, zoomed = (page.evaluate(script, frames) for script in (_SCRUB, _ZOOM))
    return {
        "first_picture": first,
        "scrub": scrubbed["times"],
        "zoom": zoomed["times"],
        "elements": max(scrubbed["most"], zoomed["most"]),
    }


def percentile(times: Sequence[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def measure_frames(folder: Path, chromium: str | None, quick: bool) -> dict[str, Any]:
    """Milliseconds, elements and ratios. The pages take turns for three rounds, or one if quick."""
    sizes = SIZES if quick else (*SIZES, *LONG)
    for size in sizes:
        save_html(events_of(size, folder), folder / f"{size}.html")
    found: dict[Size, list[dict[str, Any]]] = {size: [] for size in sizes}
    for _ in range(1 if quick else 3):
        for size in sizes:
            with _browser(chromium) as browser:
                page = browser.new_page(viewport=VIEWPORT)
                found[size].append(_look_at(page, folder / f"{size}.html", 40 if quick else 120))
    result: dict[str, Any] = {"ratios": {}}
    for size, rounds in found.items():
        frames = {
            part: [time for one in rounds for time in one[part]] for part in ("scrub", "zoom")
        }
        for part, times in frames.items():
            result[f"{part}_median_{size}"] = statistics.median(times)
            result[f"{part}_p95_{size}"] = percentile(times)
        result[f"first_picture_{size}"] = statistics.median(one["first_picture"] for one in rounds)
        result[f"elements_{size}"] = max(one["elements"] for one in rounds)
        result[f"page_bytes_{size}"] = (folder / f"{size}.html").stat().st_size
        p95 = percentile(frames["scrub"] + frames["zoom"])
        result["ratios"][f"frame_p95_over_{size.goal_ms:.0f}ms_{size}"] = p95 / size.goal_ms
    return result
