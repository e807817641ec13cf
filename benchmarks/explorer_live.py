"""How closely the page follows a run of 64 paths of 256 tokens, for explorer.py.

The server counts the tokens that it generates. The same run without a page tells how many tokens
each step has (rounding may change a few of them). So each picture of the board, recorded in a
headless Chromium on the same clock, shows how far the board is behind the server.

The ratios measure how much the run is slowed by the server's work for the page, not by the browser.
The server has one core, and one thread for the engine. The run without a page has the same in a
separate process, and the browser has the other cores. `page_over_alone` is the time of the run with
the page over its time without. `page_cpu_over_alone` is the same for the processor time of the
whole process, minus the time for the counts; other work on the machine hardly changes it.
"""

import os
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from eab import BranchingConfig
from eab.events import TokensAppended

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from scripts.servers import serving_explorer  # noqa: E402

PROMPT: Final = "Once upon a time"
SETTINGS: Final = {
    **{"max_paths": 64, "max_new_tokens": 256, "policy": "fair", "seed": 1},
    **{"entropy_threshold": 0.65, "threshold_unit": "nats"},
}
KEY: Final = "benchmark"
_RUNS_FOR_MEMORY: Final = 5
_COUNT_EVERY: Final = 0.1  # seconds
_COUNTS_TIMED: Final = 40  # after the run, to find out what a count costs the server
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_CORES: Final = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
_OBSERVE: Final = """() => { window.shown = [];
  const board = [...document.querySelectorAll('*')].map(e => e.shadowRoot).find(r => r?.querySelector('.eab'));
  const root = board.querySelector('.eab');
  if (window.observed === root) return;
  window.observed = root;
  new MutationObserver(() => window.shown.push([Date.now() / 1000, Number(root.dataset.cursor)]))
    .observe(root, { attributes: true, attributeFilter: ['data-cursor'] }); }"""


class TokenCounter(threading.Thread):
    """Polls the server for the number of tokens it has generated."""

    def __init__(self, address: str, process: int) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, float, float]] = []  # time, tokens, processor seconds
        self._process = psutil.Process(process)
        self.done = threading.Event()
        self._asked = urllib.request.Request(
            f"{address}/metrics", headers={"Authorization": f"Bearer {KEY}"}
        )

    def run(self) -> None:
        while not self.done.wait(_COUNT_EVERY):
            before = time.time()
            count = self._count()
            self.seen.append(((before + time.time()) / 2, count, self._used()))

    def cost(self) -> float:
        """Processor seconds that the server needs for one count, measured when it is idle."""
        before = self._used()
        for _ in range(_COUNTS_TIMED):
            self._count()
        return (self._used() - before) / _COUNTS_TIMED

    def _count(self) -> float:
        with urllib.request.urlopen(self._asked, timeout=30) as answer:
            text = answer.read().decode()
        [count] = re.findall(r"^eab_generated_tokens_total (\S+)", text, re.MULTILINE)
        return float(count)

    def _used(self) -> float:
        return sum(self._process.cpu_times()[:2])


@contextmanager
def on_core(first: bool) -> Iterator[None]:
    """Pin processes that start in this context to the first core, or to the others if any."""
    if not _CORES:  # macOS and Windows have no sched_getaffinity
        yield
        return
    before = os.sched_getaffinity(0)
    own = {min(_CORES)}
    os.sched_setaffinity(0, own if first else _CORES - own or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def alone() -> tuple[list[int], float, float]:
    """Make the run without a page. Returns the total tokens after each step, and the seconds and
    processor seconds from the first step to the end.
    """
    from app.server.model_cache import ModelCache
    from app.server.worker import Worker
    from eab.engine.job import run_job

    worker = Worker(ModelCache())
    live = worker.start(run_job(PROMPT, BranchingConfig(**SETTINGS), "embedded"))
    while not (live.state.run and live.state.run.steps):
        time.sleep(0.002)
    start, used = time.perf_counter(), time.process_time()
    while live.active:
        time.sleep(0.01)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    made = [len(event.tokens) for event in live.events if isinstance(event, TokensAppended)]
    worker.close()
    return [*accumulate(made)], seconds, used


def opened(browser: Browser, address: str) -> Page:
    """Open the Explore page with the prompt and the settings of the run."""
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(f"{address}/?{urlencode(SETTINGS | {'prompt': PROMPT, 'model': 'embedded'})}")
    page.get_by_role("button", name="Run", exact=True).wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    page.wait_for_timeout(3000)
    return page


def watched(page: Page, address: str, process: int) -> tuple[list[tuple[float, int]], TokenCounter]:
    """Make the run on the page. Returns when the board showed each step, and the token counter."""
    page.evaluate(_OBSERVE)
    counter = TokenCounter(address, process)
    counter.start()
    while not counter.seen:
        time.sleep(0.01)
    page.get_by_role("button", name="Run", exact=True).click()
    stop = page.get_by_role("button", name="Stop")
    stop.wait_for()
    stop.wait_for(state="hidden", timeout=600_000)
    page.wait_for_timeout(3000)
    counter.done.set()
    counter.join()
    return [tuple(one) for one in page.evaluate("window.shown")], counter


def lags(
    shown: Sequence[tuple[float, int]],
    counted: Sequence[tuple[float, float, float]],
    ends: Sequence[int],
) -> tuple[list[float], float]:
    """How many seconds the board is behind just before each picture of the live run, when it is
    furthest behind; and the pictures per second.

    Args:
        ends: The total tokens after each step.
    """
    times, tokens, _ = np.array(counted).T
    tokens = tokens - tokens[0]
    grows = np.flatnonzero(np.diff(tokens)) + 1
    first, last = times[grows[0]], times[grows[-1]]
    running: list[tuple[float, int]] = []
    for at, step in shown:
        # At the end, the board goes back to the step with the most paths.
        if at >= first and step > (running[-1][1] if running else 0):
            running.append((at, step))
    made = [float(times[np.searchsorted(tokens, min(end, tokens[-1]))]) for end in ends]
    before = [-1, *(step for _, step in running)]
    behind = [
        at - made[min(step + 1, len(made) - 1)]
        for (at, _), step in zip(running, before, strict=False)
    ]
    during = [at for at, _ in running if at <= last]
    return behind, len(during) / (last - first)


def measure_live(chromium: str | None, quick: bool) -> dict[str, Any]:
    """Lags, picture rates, the slowdown of the run, and the memory after more runs."""
    found: dict[str, list[float]] = {
        name: [] for name in ("lag", "rate", "alone", "page", "alone_cpu", "page_cpu", "memory")
    }
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        rules = Path(folder) / "eab.toml"
        # One model only, because the server would load the others in the background.
        rules.write_text(f'key = "{KEY}"\nmodels = ["embedded"]\n', encoding="utf-8")
        os.environ |= {"EAB_RULES": str(rules), "EAB_STORE": "off"} | _ONE_THREAD
        spawn = get_context("spawn")
        with on_core(first=False):
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
        with (
            on_core(first=True),
            serving_explorer() as (address, process),
            ProcessPoolExecutor(1, spawn) as without_page,
        ):
            # Warm-up: both processes load the model and import what a first run needs.
            without_page.submit(alone).result()
            with on_core(first=False):
                page = opened(browser, address)
                watched(page, address, process)
            for _ in range(2 if quick else _RUNS_FOR_MEMORY + 1):
                baseline = without_page.submit(alone).result()
                _measure_run(watched(page, address, process), baseline, found)
                found["memory"].append(psutil.Process(process).memory_info().rss)
            browser.close()
    return _result(found)


def _measure_run(
    followed: tuple[list[tuple[float, int]], TokenCounter],
    without_page: tuple[list[int], float, float],
    found: dict[str, list[float]],
) -> None:
    shown, counter = followed
    ends, seconds, used = without_page
    behind, rate = lags(shown, counter.seen, ends)
    first, last = counter.seen[0][1], counter.seen[-1][1]
    began = next(one for one in counter.seen if one[1] > first)
    ended = next(one for one in counter.seen if one[1] == last)
    found["lag"] += behind
    found["rate"].append(rate)
    found["alone"].append(seconds)
    found["alone_cpu"].append(used)
    found["page"].append(ended[0] - began[0])
    counts = counter.seen.index(ended) - counter.seen.index(began)
    found["page_cpu"].append(ended[2] - began[2] - counts * counter.cost())


def _result(found: dict[str, list[float]]) -> dict[str, Any]:
    p95 = statistics.quantiles(found["lag"], n=20, method="inclusive")[-1]
    times = [*zip(found["page"], found["alone"], strict=True)]
    used = [*zip(found["page_cpu"], found["alone_cpu"], strict=True)]
    over, cpu_over = ([page / alone for page, alone in pairs] for pairs in (times, used))
    return {
        "run_seconds_alone": statistics.median(found["alone"]),
        "run_seconds_page": statistics.median(found["page"]),
        "page_over_alone_least": min(over),
        "page_over_alone_most": max(over),
        "live_lag_median": statistics.median(found["lag"]),
        "live_lag_p95": p95,
        "live_lag_most": max(found["lag"]),
        "live_updates_per_second": statistics.median(found["rate"]),
        "memory_mib": [round(after / 2**20) for after in found["memory"]],
        "memory_after_more_runs_mib": (found["memory"][-1] - found["memory"][0]) / 2**20,
        "ratios": {
            "live_lag_p95_over_1s": p95,
            "page_over_alone": statistics.median(over),
            "page_cpu_over_alone": statistics.median(cpu_over),
        },
    }
