"""A public server with thirty visitors over a long time.

    python benchmarks/public_server.py [--minutes 10] [--json FILE] [--table FILE]

Whether memory, threads, descriptors and the time to the first token stay constant, and whether the
log stays empty. The server is a separate process with the rules for a public server. The visitors
speak Streamlit's protocol without a browser (tests/support/raw_session.py). Each makes one run after
another, leaves in the middle of a run after a few, and comes back in a new tab. Timing starts when the
server remembers as many runs and closed tabs as it ever will. The ratios compare quarters of the time:
medians of samples of every second, and the 95th percentile of the seconds from Run to the first token.
"""

import os
import random
import re
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import floor, inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import urlencode

import psutil
from published import command_line, markdown_table, publish, ratio_lines, where
from raw_session import RawSession
from serving import OPENINGS

from app.server.worker import MAX_REMEMBERED
from scripts.servers import serving_explorer

SETTINGS: Final = {"max_paths": 8, "max_new_tokens": 24, "min_fork_weight": 0.03}
# All visitors share one address here, so tabs are told apart, and none is turned away.
RULES: Final = 'visitor = "tab"\nseconds_per_hour = 1000000\n'
VISITORS: Final = 30
RUNS_PER_TAB: Final = 6  # the visitor leaves in the middle of the last one
CLOSED_TABS_KEPT: Final = 120.0  # seconds that Streamlit keeps the session of a closed tab
PAUSE: Final = 20.0  # seconds between two runs of a visitor, on average
# The lines that a server writes when it starts and stops.
EXPLAINED: Final = re.compile(r"\s*$|Public server\. |  You can now view|  URL: |  Stopping\.\.\.")


@dataclass
class Soak:
    """The record of what happened; visitors add to it from their threads."""

    began: float = inf  # `time.monotonic()` when the server had settled
    ends: float = inf  # when the visitors leave
    # when, and the resident bytes, threads and open descriptors of the server
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)
    # when each run was started, and its seconds to the first token
    first_tokens: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what went wrong for a visitor

    def quarter(self, number: int) -> tuple[float, ...]:
        """Of a quarter of the time: the number of runs, the medians of resident bytes, threads and
        descriptors, and the 95th percentile of the seconds to the first token.
        """

        def inside(at: float) -> bool:
            return floor(4 * (at - self.began) / (self.ends - self.began)) == number

        seconds = [seconds for at, seconds in self.first_tokens if inside(at)]
        columns = zip(*(sample[1:] for sample in self.samples if inside(sample[0])), strict=True)
        p95 = statistics.quantiles(seconds, n=20)[-1]
        return len(seconds), *map(statistics.median, columns), p95


@contextmanager
def sampled(process: int, soak: Soak) -> Iterator[None]:
    """Add a sample of the process to `soak` every second."""
    server, over = psutil.Process(process), Event()

    def look() -> None:
        while not over.wait(1):
            rss, threads = server.memory_info().rss, server.num_threads()
            soak.samples.append((time.monotonic(), rss, threads, server.num_fds()))

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

    def _run(self, tab: RawSession, to_its_end: bool) -> None:
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


def measure(seconds: float) -> tuple[str, dict[str, Any]]:
    """Keep a server busy for `seconds` seconds after it has settled. Returns text and figures."""
    soak = Soak()
    with TemporaryDirectory() as folder:
        log, rules = Path(folder) / "log", Path(folder) / "eab.toml"
        rules.write_text(RULES, encoding="utf-8")
        environment = os.environ | {"EAB_PUBLIC": "1", "EAB_RULES": str(rules)}
        with (
            log.open("wb") as written,
            serving_explorer(env=environment, stdout=written, stderr=written) as server,
            sampled(server[1], soak),
            ThreadPoolExecutor(VISITORS) as pool,
        ):
            settled = time.monotonic() + CLOSED_TABS_KEPT
            for number in range(VISITORS):
                pool.submit(Visitor(number, server[0], soak).stay)
            while time.monotonic() < settled or len(soak.first_tokens) < MAX_REMEMBERED:
                time.sleep(0.1)
            soak.began = time.monotonic()
            soak.ends = soak.began + seconds
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    unexplained = [line for line in lines if not EXPLAINED.match(line)]
    quarters = [soak.quarter(number) for number in range(4)]
    names = ("rss", "threads", "descriptors")
    ratios = {
        f"{name}_last_over_second_quarter": quarters[3][place] / quarters[1][place]
        for place, name in enumerate(names, 1)
    }
    ratios["ttft_p95_last_over_first_quarter"] = quarters[3][4] / quarters[0][4]
    rows = [
        [number, runs, f"{rss / 2**20:.0f}", f"{threads:.0f}", f"{files:.0f}", f"{p95:.2f} s"]
        for number, (runs, rss, threads, files, p95) in enumerate(quarters, 1)
    ]
    heads = ["quarter", "runs", "RSS, MiB", "threads", "descriptors", "first token, p95"]
    wrong = [f"unexplained lines in the log: {len(unexplained)}", *unexplained[:20]]
    wrong += [f"problems: {len(soak.problems)}", *soak.problems[:20], ""]
    text = "\n".join([markdown_table(heads, rows), ratio_lines(ratios), *wrong])
    return text, {"quarters": quarters, "problems": soak.problems, "ratios": ratios}


def main() -> None:
    parser = command_line(__doc__, "one minute")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the visitors stay")
    options = parser.parse_args()
    text, result = measure(60 * (1 if options.quick else options.minutes))
    publish(options, where("float32 on cpu"), text, result)


if __name__ == "__main__":
    main()
