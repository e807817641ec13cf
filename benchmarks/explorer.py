"""The explorer's response times, and what large runs cost.

    python benchmarks/explorer.py [--part PART] [--quick] [--runs FOLDER] [--json FILE]

Starts the app on this machine and drives a headless browser: the one that EAB_CHROMIUM names, or
chromium or google-chrome. Times of `page` and `frames` are in milliseconds. Parts:

    page    first movement, cursor to screen, Stop to idle, and how much of the board a live run of
            at most 20 paths of 200 tokens replaces. No page can move before Streamlit shows
            anything, so a script that shows one word is timed too, in its own server and browser.
    frames  scrubbing and zooming exported pages of large runs (explorer_frames.py)
    events  the size of a run file of 256 paths of 400 tokens, and folding it (explorer_events.py)
    live    how the page follows a run of 64 paths of 256 tokens, in seconds (explorer_live.py)

`--quick` skips `page` and makes fewer rounds. `--runs` keeps the large runs for the next time.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from scripts.servers import free_port, serving_explorer  # noqa: E402

STEPS = 40
BOARD = "[...document.querySelectorAll('*')].map(e => e.shadowRoot).find(r => r && r.querySelector('.eab'))"
PARTS = "['.eab', 'svg.tree', 'svg.entropy', 'svg.memory']"
FIRST_MOVEMENT = f"""() => new Promise(done => {{ const look = () => {{
  const root = ({BOARD})?.querySelector('.eab');
  Number(root?.dataset.cursor) > 0 ? done(performance.now()) : requestAnimationFrame(look); }}; look(); }})"""
CURSOR = f"""async steps => {{ const root = ({BOARD}).querySelector('.eab'); const times = [];
  for (let step = 0; step < steps; step += 1) {{ const start = performance.now();
    root.dispatchEvent(new KeyboardEvent('keydown', {{ key: step % 2 ? 'ArrowRight' : 'ArrowLeft', bubbles: true }}));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start); }} return times; }}"""


def server(script: str = "app/main.py") -> AbstractContextManager[tuple[str, int]]:
    """Serve the app or another script in a separate process. Yields address and process id."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", script, f"--server.port={port}"]
    return serving_explorer([*command, "--server.address=127.0.0.1"], port)


def has_torch(process: int) -> bool | None:
    """Whether the process has loaded PyTorch's library; None if the system does not tell."""
    maps = Path(f"/proc/{process}/maps")
    return "libtorch" in maps.read_text(encoding="utf-8") if maps.exists() else None


def live_run(page: Page) -> dict[str, Any]:
    """Make a run of 20 x 200 and count the parts of the board that were replaced. Make it again,
    stop it, and time the stop.
    """
    for name, presses in (
        ("Max new tokens", ["End", *["ArrowLeft"] * 56]),
        ("Max paths", ["Home", *["ArrowRight"] * 19]),
    ):
        slider = page.get_by_role("slider", name=name)
        slider.focus()
        for key in presses:
            slider.press(key)
    page.evaluate(f"window.kept = {PARTS}.map(name => ({BOARD}).querySelector(name))")
    page.get_by_role("textbox", name="Prompt").fill("Once upon a time")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Done after").first.wait_for(timeout=300_000)
    same = page.evaluate(
        f"kept.filter((node, at) => node === ({BOARD}).querySelector({PARTS}[at])).length"
    )
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("of 200").first.wait_for(timeout=120_000)
    start = time.perf_counter()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped after").or_(page.get_by_text("Done after")).first.wait_for()
    seconds = time.perf_counter() - start
    return {"stop_click_to_message": 1000 * seconds, "parts_replaced": 4 - same}


def stop_to_idle() -> dict[str, float]:
    """Stop a run of the worker, without a page. Returns the milliseconds and the steps after it."""
    from app.server.model_cache import ModelCache
    from app.server.worker import Worker
    from eab.config import BranchingConfig
    from eab.engine.job import run_job

    worker = Worker(ModelCache())
    long = BranchingConfig(max_new_tokens=256)
    run = worker.start(run_job("Once upon a time", long, "embedded"))

    def steps() -> int:
        return len(run.state.run.steps) if run.state.run is not None else 0

    while steps() < 20:
        time.sleep(0.005)
    before, start = steps(), time.perf_counter()
    run.stop()
    while run.active:
        time.sleep(0.0005)
    found = {
        "stop_to_idle": 1000 * (time.perf_counter() - start),
        "steps_after_stop": steps() - before,
    }
    worker.close()
    return found


def chromium() -> str | None:
    return shutil.which(os.environ.get("EAB_CHROMIUM", "chromium")) or shutil.which("google-chrome")


@contextmanager
def opened(address: str) -> Iterator[Page]:
    """Open the page at this address in a new browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(address)
        yield page
        browser.close()


def one_word() -> float:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "word.py"
        script.write_text("import streamlit\nstreamlit.write('ready')\n", encoding="utf-8")
        with server(str(script)) as (address, _), opened(address) as page:
            page.get_by_text("ready").wait_for()
            return float(page.evaluate("performance.now()"))


def measure() -> dict[str, Any]:
    bare = one_word()
    with server() as (address, process), opened(address) as page:
        found: dict[str, Any] = {
            "first_movement_cold": page.evaluate(FIRST_MOVEMENT),
            "torch_then": has_torch(process),
        }
        page.reload()
        found["first_movement_warm"] = page.evaluate(FIRST_MOVEMENT)
        page.wait_for_timeout(8000)
        times = page.evaluate(CURSOR, STEPS)
        found |= {
            "cursor_to_screen": statistics.median(times),
            "cursor_to_screen_worst": max(times),
        }
        found |= live_run(page)
    return {"one_word_cold": bare} | found | stop_to_idle()


def large_runs(parts: Sequence[str], runs: str | None, quick: bool) -> dict[str, Any]:
    """Measure the parts about large runs. Runs that the folder lacks are made first."""
    from explorer_events import measure_events
    from explorer_frames import SIZES, events_of, measure_frames
    from explorer_live import measure_live

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(runs or made)
        folder.mkdir(parents=True, exist_ok=True)
        if "live" in parts:  # first, before this process holds large runs
            found = joined(found, measure_live(chromium(), quick))
        if "frames" in parts:
            found = joined(found, measure_frames(folder, chromium(), quick))
        if "events" in parts:
            found = joined(found, measure_events(events_of(SIZES[-1], folder), quick))
    return found


def joined(found: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Both results merged, including their ratios."""
    return found | more | {"ratios": found.get("ratios", {}) | more.get("ratios", {})}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("page", "frames", "events", "live")
    parser.add_argument("--part", choices=names, help="run only this part")
    parser.add_argument("--quick", action="store_true", help="without `page`, in fewer rounds")
    parser.add_argument("--runs", metavar="FOLDER", help="where the large runs are kept")
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    options = parser.parse_args()
    parts = [options.part] if options.part else names[1:] if options.quick else names
    found = measure() if "page" in parts else {}
    found = joined(found, large_runs(parts, options.runs, options.quick))
    ratios = found.pop("ratios", {})
    for name, value in (found | ratios).items():
        print(f"{name:30} {value:.2f}" if isinstance(value, float) else f"{name:30} {value}")
    if options.json:
        result = found | {"ratios": ratios}
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
