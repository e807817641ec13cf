"""The explorer's response times, and the frames of large runs.

    python benchmarks/explorer.py [--only page|words|frames] [--quick] [--json FILE] [--table FILE]

Starts the app here and drives a headless browser (EAB_CHROMIUM, or chromium). Times are in ms.

page: first movement, cursor to screen, and how much of the board a live run of at most 20 paths of 200
tokens replaces. No page can move before Streamlit shows anything, so a script that shows one word is
timed too, in its own server and browser.

words: from Enter to the first new token on the screen, for the first question to a new server, asked
5 seconds after its page is drawn (cold), and for others in the same tab (warm).

frames: scrubbing and zooming exported pages of large runs, from the input event until the picture is
drawn. Runs of 2,000 tokens are invented (tests/support/invented_runs.py): the context of the embedded
model is too short for them.
"""

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright
from published import command_line, markdown_table, publish, where

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.run import fold
from eab.run.events import Event
from eab.share.exports import save_html
from scripts.servers import free_port, serving_explorer

CURSOR_STEPS, QUESTION_ROUNDS = 40, 3
SIZES: Final = ((64, 400), (256, 400), (8, 2000), (64, 2000))  # paths x tokens
CONTEXT: Final = 500  # new tokens that fit the embedded model's context
FIRST, *OTHERS = (
    "Why do cats purr?",
    "What is the capital of France?",
    "Name a colour.",
    "Tell me a joke.",
)
BOARD: Final = "[...document.querySelectorAll('*')].map(e => e.shadowRoot).find(r => r && r.querySelector('.eab'))"
PARTS_OF_BOARD: Final = "['.eab', 'svg.tree', 'svg.entropy', 'svg.memory']"
FIRST_MOVEMENT: Final = f"""() => new Promise(done => {{ const look = () => {{
  const root = ({BOARD})?.querySelector('.eab');
  Number(root?.dataset.cursor) > 0 ? done(performance.now()) : requestAnimationFrame(look); }}; look(); }})"""
CURSOR: Final = f"""async steps => {{ const root = ({BOARD}).querySelector('.eab'); const times = [];
  for (let step = 0; step < steps; step += 1) {{ const start = performance.now();
    root.dispatchEvent(new KeyboardEvent('keydown', {{ key: step % 2 ? 'ArrowRight' : 'ArrowLeft', bubbles: true }}));
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start); }} return times; }}"""
# Of a frame: whether the board shows at least one token after this prompt.
ON_SCREEN: Final = f"""question => {{ const root = ({BOARD})?.querySelector('.eab');
  const prompt = root?.querySelector('.box.prompt')?.getAttribute('aria-label') ?? '';
  return prompt.includes(question) && root.querySelector('.box.path:not(.hidden)') !== null; }}"""
WATCH: Final = """window.firstPicture = null; const look = () => {
  if (!document.querySelector('.eab .box.path')) return requestAnimationFrame(look);
  requestAnimationFrame(() => setTimeout(() => { window.firstPicture = performance.now(); })); };
look();"""
FIRST_PICTURE: Final = """async () => {
  while (!window.firstPicture) await new Promise(requestAnimationFrame);
  return window.firstPicture; }"""
FRAME: Final = """const frame = async (act) => { const start = performance.now(); act();
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  times.push(performance.now() - start);
  most = Math.max(most, document.querySelectorAll('*').length); };
const times = []; let most = 0;"""
# Half of the frames move step by step, the other half jump around.
SCRUB: Final = f"""async (count) => {{ {FRAME}
  const slider = document.querySelector('.eab .transport input[type=range]');
  const last = Number(slider.max);
  for (let at = 0; at < count; at += 1) {{
    const step = at % 2 ? Math.floor((last * ((at * 37) % 101)) / 101) : Math.floor(last / 2 + at / 4);
    await frame(() => {{ slider.value = step; slider.dispatchEvent(new Event('input', {{ bubbles: true }})); }});
  }} return {{ times, most }}; }}"""
ZOOM: Final = f"""async (count) => {{ {FRAME}
  const tree = document.querySelector('.eab svg.tree');
  for (let at = 0; at < count; at += 1) {{
    const wheel = {{ deltaY: at % 40 < 20 ? -100 : 100, ctrlKey: true, cancelable: true, bubbles: true }};
    await frame(() => tree.dispatchEvent(new WheelEvent('wheel', wheel)));
  }} return {{ times, most }}; }}"""


@contextmanager
def opened(address: str, script: str = "") -> Iterator[Page]:
    """Open the page at this address in a new browser; `script` runs before those of the page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which(environ.get("EAB_CHROMIUM", "chromium")),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.add_init_script(script)
        page.goto(address)
        yield page
        browser.close()


def one_word() -> float:
    with tempfile.TemporaryDirectory() as folder:
        script, port = Path(folder) / "word.py", free_port()
        script.write_text("import streamlit\nstreamlit.write('ready')\n", encoding="utf-8")
        command = [sys.executable, "-m", "streamlit", "run", str(script), f"--server.port={port}"]
        with serving_explorer(command, port) as (address, _), opened(address) as page:
            page.get_by_text("ready").wait_for()
            return float(page.evaluate("performance.now()"))


def live_run(page: Page) -> dict[str, float]:
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
    page.evaluate(f"window.kept = {PARTS_OF_BOARD}.map(name => ({BOARD}).querySelector(name))")
    page.get_by_role("textbox", name="Prompt").fill("Once upon a time")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Done after").first.wait_for(timeout=300_000)
    kept = f"(node, at) => node === ({BOARD}).querySelector({PARTS_OF_BOARD}[at])"
    same = page.evaluate(f"window.kept.filter({kept}).length")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("of 200").first.wait_for(timeout=120_000)
    start = time.perf_counter()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped after").or_(page.get_by_text("Done after")).first.wait_for()
    seconds = time.perf_counter() - start
    return {"stop, from the click to the words": 1000 * seconds, "parts replaced": 4 - same}


def measure_page(quick: bool) -> dict[str, float]:
    found = {"one word, first visit": one_word()}
    with serving_explorer() as (address, _), opened(address) as page:
        found["first frame, first visit"] = page.evaluate(FIRST_MOVEMENT)
        page.reload()
        found["first frame, after a reload"] = page.evaluate(FIRST_MOVEMENT)
        page.wait_for_timeout(8000)
        times = page.evaluate(CURSOR, CURSOR_STEPS)
        found |= {"cursor to screen": statistics.median(times), "at worst": max(times)}
        return found if quick else found | live_run(page)


def ms_on_screen(page: Page, question: str) -> float:
    """Ask, wait for the first token, and let the run end."""
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill(question)
    start = time.perf_counter()
    prompt.press("Enter")
    page.wait_for_function(ON_SCREEN, arg=question, timeout=120_000)
    seconds = time.perf_counter() - start
    page.wait_for_timeout(1000)  # the page shows Stop instead of Run
    page.get_by_role("button", name="Run", exact=True).wait_for(timeout=120_000)
    return 1000 * seconds


def measure_words(quick: bool) -> dict[str, float]:
    cold, warm = [], []
    for _ in range(1 if quick else QUESTION_ROUNDS):
        with serving_explorer() as (address, _), opened(address) as page:
            page.locator(".eab .box.path").first.wait_for()
            page.wait_for_timeout(5000)
            cold.append(ms_on_screen(page, FIRST))
            warm += [ms_on_screen(page, question) for question in OTHERS]
    return {
        f"first word, {name} {what}": number(times)
        for name, times in {"cold": cold, "warm": warm}.items()
        for what, number in {"median": statistics.median, "at worst": max}.items()
    }


def events_of(paths: int, tokens: int) -> Sequence[Event]:
    if tokens > CONTEXT:
        from invented_runs import invented_run  # `published` has added its folder

        return invented_run(5, tokens, paths)
    config = BranchingConfig(
        entropy_threshold=0.65,
        max_paths=paths,
        max_new_tokens=tokens,
        min_fork_weight=0.0,
        branch_min_p=0.0,
        seed=1,
        kv_limit_mib=8192,
    )
    run = fold(event_stream(load_model("embedded"), Request("Once upon a time", config)))
    assert len(run.leaves()) == paths, "the benchmark's name says how many"
    return run.events


def measure_frames(quick: bool) -> dict[str, float]:
    """Of each size, a few rounds: frames of both kinds, the first picture, elements and bytes."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for paths, tokens in SIZES[2:3] if quick else SIZES:
            size, file = f"{paths} x {tokens}", Path(folder) / f"{paths}_{tokens}.html"
            save_html(events_of(paths, tokens), file)
            firsts, most = [], 0
            times: dict[str, list[float]] = {"scrubbing": [], "zooming": []}
            for _ in range(1 if quick else 3):
                with opened(file.as_uri(), WATCH) as page:
                    firsts.append(page.evaluate(FIRST_PICTURE))
                    page.evaluate(SCRUB, 10)  # this stops the automatic replay
                    page.wait_for_timeout(500)
                    for kind, script in {"scrubbing": SCRUB, "zooming": ZOOM}.items():
                        frames = page.evaluate(script, 40 if quick else 120)
                        times[kind] += frames["times"]
                        most = max(most, frames["most"])
            for kind, each in (times | {"both": [*times["scrubbing"], *times["zooming"]]}).items():
                p95 = statistics.quantiles(each, n=20, method="inclusive")[-1]
                found |= {f"{size}, {kind}": statistics.median(each), f"{size}, {kind}, p95": p95}
            found[f"{size}, first picture"] = statistics.median(firsts)
            found |= {f"{size}, elements": most, f"{size}, bytes": file.stat().st_size}
    return found


PARTS: Final = {"page": measure_page, "words": measure_words, "frames": measure_frames}


def main() -> None:
    parser = command_line(__doc__, quick="one round, without the live runs and most large runs")
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    options = parser.parse_args()
    found: dict[str, float] = {}
    for name, measure in PARTS.items():
        if options.only in (None, name):
            found |= measure(options.quick)
    rows = [(name, f"{value:,.0f}") for name, value in found.items()]
    publish(options, where("no model"), markdown_table(["", "ms"], rows), {"found": found})


if __name__ == "__main__":
    main()
