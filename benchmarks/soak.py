"""A server with thirty visitors over a long time: whether memory, threads, descriptors and the time
to the first token stay constant, and whether its log stays empty.

    python benchmarks/soak.py --minutes 10 --json soak.json

The server is a separate process with the rules for a public server. The visitors speak Streamlit's
protocol without a browser (tests/support/raw_session.py). Each visitor makes one run after another;
after a few runs it leaves in the middle of a run and comes back in a new tab. Timing starts when
the server remembers as many runs and closed tabs as it ever will. The ratios compare quarters of
the time: medians of samples taken every second, and the 95th percentile of the seconds from the
click on Run to the first token on the board.

A second part, in a separate process, loads one model after another into a cache that keeps only
some of them. Its ratio compares the memory after the loads of the last and of the second quarter.
"""

import argparse
import multiprocessing
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import floor, inf
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Final
from urllib.parse import urlencode

import psutil
from chat_prompts import OPENINGS
from published import markdown_table, publish, where

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # for scripts and raw_session

from raw_session import RawSession  # noqa: E402

from app.server.registry import MAX_RUNS  # noqa: E402
from scripts.servers import serving_explorer  # noqa: E402

SETTINGS: Final = {"max_paths": 8, "max_new_tokens": 24, "min_fork_weight": 0.03}
# All visitors share one address here, so tabs are told apart, and none is turned away.
RULES: Final = 'visitor = "tab"\nseconds_per_hour = 1000000\n'
RUNS_PER_TAB: Final = 6  # the visitor leaves in the middle of the last one
CLOSED_TABS_KEPT: Final = 120.0  # seconds that Streamlit keeps the session of a closed tab
PAUSE: Final = 20.0  # seconds between two runs of a visitor, on average
SAMPLED: Final = ("rss", "threads", "descriptors")
# The lines that a server writes when it starts and stops.
EXPLAINED: Final = re.compile(r"\s*$|Public server\. |  You can now view|  URL: |  Stopping\.\.\.")
SWAPS: Final = 50
SWAPPED: Final = ("embedded@int8", "embedded-draft@int8", "embedded@int4", "embedded-draft@int4")


@dataclass(frozen=True)
class Sample:
    """The server process at one moment: resident bytes, threads and open descriptors."""

    at: float
    rss: int
    threads: int
    descriptors: int


@dataclass
class Soak:
    """The record of what happened; visitors add to it from their threads."""

    began: float = inf  # `time.monotonic()` when the server had settled
    ends: float = inf  # when the visitors leave
    samples: list[Sample] = field(default_factory=list)
    # when each run was started, and its seconds to the first token
    first_tokens: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what went wrong for a visitor
    log: list[str] = field(default_factory=list)  # unexpected lines of the server's log

    def quarter(self, at: float) -> int:
        """The quarter of the time that a moment is in, 0 to 3; any other number is outside."""
        return floor(4 * (at - self.began) / (self.ends - self.began))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the visitors stay")
    parser.add_argument("--visitors", type=int, default=30)
    parser.add_argument("--json", metavar="FILE", help="write samples and ratios")
    parser.add_argument("--table", metavar="FILE", help="write the Markdown table here too")
    options = parser.parse_args()
    soak, swaps = soaked(options.visitors, 60 * options.minutes), memory_after_swaps()
    ratios = soak_ratios(soak) | {"swaps_rss_last_over_second_quarter": growth(swaps)}
    result = {
        "runs": sum(at >= soak.began for at, _ in soak.first_tokens),
        "unexplained_log_lines": len(soak.log),
        "problems": soak.problems,
        "rss_mib": [round(sample.rss / 2**20) for sample in soak.samples],
        "threads": [sample.threads for sample in soak.samples],
        "descriptors": [sample.descriptors for sample in soak.samples],
        "swaps_rss_mib": [round(rss / 2**20) for rss in swaps],
        "ratios": ratios,
    }
    publish(options, where("float32 on cpu"), table(soak, swaps, ratios), result)


def soaked(visitors: int, seconds: float) -> Soak:
    """Keep a server busy for `seconds` seconds after it has settled."""
    soak = Soak()
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with (
            public_server(Path(folder), log) as (address, process),
            sampled(process, soak),
            ThreadPoolExecutor(visitors) as pool,
        ):
            settled = time.monotonic() + CLOSED_TABS_KEPT
            for number in range(visitors):
                pool.submit(Visitor(number, address, soak).stay)
            while time.monotonic() < settled or len(soak.first_tokens) < MAX_RUNS:
                time.sleep(0.1)
            soak.began = time.monotonic()
            soak.ends = soak.began + seconds
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    soak.log = [line for line in lines if not EXPLAINED.match(line)]
    return soak


@contextmanager
def public_server(folder: Path, log: Path) -> Iterator[tuple[str, int]]:
    """Run a public server that writes to this log. Yields its address and process id."""
    rules = folder / "eab.toml"
    rules.write_text(RULES, encoding="utf-8")
    environment = os.environ | {"EAB_PUBLIC": "1", "EAB_RULES": str(rules)}
    with (
        log.open("wb") as written,
        serving_explorer(env=environment, stdout=written, stderr=written) as found,
    ):
        yield found


@contextmanager
def sampled(process: int, soak: Soak) -> Iterator[None]:
    """Add a sample of the process to `soak` every second."""
    server, over = psutil.Process(process), Event()

    def look() -> None:
        while not over.wait(1):
            with server.oneshot():
                rss, threads = server.memory_info().rss, server.num_threads()
                sample = Sample(time.monotonic(), rss, threads, server.num_fds())
                soak.samples.append(sample)

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Visitor:
    """A visitor who makes one run after another, in one tab after another."""

    def __init__(self, number: int, address: str, soak: Soak) -> None:
        self._address, self._soak = address, soak
        prompt = f"{OPENINGS[number % len(OPENINGS)]} {number}"
        self._query = urlencode({"prompt": prompt, "seed": number, **SETTINGS})
        self._random = random.Random(number)

    def stay(self) -> None:
        """Make runs until the time is up."""
        while time.monotonic() < self._soak.ends:
            try:
                self._use_a_tab()
            except Exception as error:  # reported at the end; the other visitors go on
                self._soak.problems.append(f"{type(error).__name__}: {error}")

    def _use_a_tab(self) -> None:
        tab = RawSession(self._address, self._query)
        try:
            for number in range(RUNS_PER_TAB):
                self._run(tab, to_its_end=number < RUNS_PER_TAB - 1)
                later = time.monotonic() + self._random.uniform(0, 2 * PAUSE)
                tab.until(lambda later=later: time.monotonic() >= later)
                if time.monotonic() >= self._soak.ends:
                    return
        finally:
            tab.close()

    def _run(self, tab: RawSession, to_its_end: bool = True) -> None:
        before, began = tab.run_id, time.monotonic()
        tab.press("run_button")
        tab.until(lambda: tab.run_id != before)
        own = f"live-{tab.run_id}"
        tab.until(lambda: tab.board["run"] == own and tab.board["version"] > 0)
        self._soak.first_tokens.append((began, time.monotonic() - began))
        if to_its_end:
            tab.until(lambda: tab.board["run"] == own and bool(tab.board["ended"]))
            tab.until(lambda: "Texts" in tab.tabs)
        for kept in (tab.boards, tab.polled, tab.progress):
            del kept[:-1]


def memory_after_swaps() -> list[int]:
    """Resident bytes after each load of a model, which replaces another model."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_swap_models)


def _swap_models() -> list[int]:
    from app.server.model_cache import ModelCache
    from eab.config import BranchingConfig
    from eab.engine.loop import event_stream
    from eab.engine.request import Request

    models, process, found = ModelCache(), psutil.Process(), []
    request = Request(OPENINGS[0], BranchingConfig(max_new_tokens=8, max_paths=4))
    for number in range(SWAPS):
        for _ in event_stream(models.get(SWAPPED[number % len(SWAPPED)]), request):
            pass
        found.append(process.memory_info().rss)
    return found


def growth(values: list[int]) -> float:
    """The median of the last quarter over that of the second quarter."""
    size = len(values) // 4
    return median(values[-size:]) / median(values[size : 2 * size])


def soak_ratios(soak: Soak) -> dict[str, float]:
    """How much each measure has grown at the end: ratios of the last to an earlier quarter."""
    medians = [quarter_medians(soak, number) for number in range(4)]
    ratios = {
        f"{name}_last_over_second_quarter": medians[3][name] / medians[1][name] for name in SAMPLED
    }
    return ratios | {"ttft_p95_last_over_first_quarter": ttft_p95(soak, 3) / ttft_p95(soak, 0)}


def quarter_medians(soak: Soak, number: int) -> dict[str, float]:
    """The medians of the samples in a quarter, by name."""
    samples = [sample for sample in soak.samples if soak.quarter(sample.at) == number]
    return {name: median(getattr(sample, name) for sample in samples) for name in SAMPLED}


def ttft_p95(soak: Soak, quarter: int) -> float:
    """The 95th percentile of the seconds to the first token, for runs started in a quarter."""
    seconds = [seconds for at, seconds in soak.first_tokens if soak.quarter(at) == quarter]
    return quantiles(seconds, n=20)[-1]


def table(soak: Soak, swaps: list[int], ratios: dict[str, float]) -> str:
    """A table of the quarters, then the ratios, and what went wrong."""
    rows = []
    for number in range(4):
        rss, threads, descriptors = quarter_medians(soak, number).values()
        runs = sum(soak.quarter(at) == number for at, _ in soak.first_tokens)
        sizes = (f"{rss / 2**20:.0f}", f"{threads:.0f}", f"{descriptors:.0f}")
        rows.append([number + 1, runs, *sizes, f"{ttft_p95(soak, number):.2f} s"])
    heads = ["quarter", "runs", "RSS, MiB", "threads", "descriptors", "first token, p95"]
    loads = " ".join(f"{rss / 2**20:.0f}" for rss in swaps)
    return "\n".join(
        [
            markdown_table(heads, rows),
            f"MiB after each of {SWAPS} loads of another model: {loads}\n",
            *(f"{name}: {ratio:.3f}" for name, ratio in ratios.items()),
            f"unexplained lines in the log: {len(soak.log)}",
            *soak.log[:20],
            f"problems: {len(soak.problems)}",
            *soak.problems[:20],
            "",
        ]
    )


if __name__ == "__main__":
    main()
