"""A model on a llama.cpp server on this machine against the same model in this process.

    python benchmarks/remote.py --json remote.json

The ways take turns with the same prompts, seeds and settings, and must all produce the same tokens.
Ratios are ratios of medians (eab.timing). `cached_share` is the share of the tokens sent that the
server, by its own account, did not have to compute.

The server and the engine use one thread each, on the same machine, where a round trip takes about a
millisecond. Servers are usually farther away, so everything is also measured over a link with an
artificial delay (benchmarks/delayed_link.py). Only the delay is artificial.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for scripts

import torch
from delayed_link import delayed_link
from published import command_line, markdown_table, publish, where

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.events import StepTimed
from eab.formatting import counted
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.remote import operator
from eab.remote.loading import connect
from eab.run import RunState, fold
from eab.timing import MIN_REPEATS, Timing, comparison, take_turns, timed
from scripts.llama_server import llama_server
from scripts.write_gguf import write_embedded

PROMPTS: Final = ("Once upon a time, there was a", "One day, a girl named", "The cat sat on the")
PATHS: Final = (1, 2, 4, 20)
ROUND_TRIPS: Final = (0.0, 0.02)  # added delays, in seconds
LOCAL, PLAIN, AHEAD = "in this process", "one by one", "run ahead"


@dataclass(frozen=True)
class Setup:
    """A model with settings, and its latest run and number of requests for each seed."""

    model: LanguageModel
    config: BranchingConfig
    prompts: Sequence[str]
    runs: dict[int, tuple[RunState, int]]

    def work(self) -> None:
        for seed, prompt in enumerate(self.prompts):
            request = Request(prompt, replace(self.config, seed=seed))
            events = list(event_stream(self.model, request))
            asked = sum(isinstance(event, StepTimed) and event.tokens > 0 for event in events)
            self.runs[seed] = fold(events), asked

    def tokens(self) -> list[list[list[int]]]:
        """The tokens of each path of each run."""
        return [
            [[token.id for token in path.tokens] for path in run.paths]
            for run, _ in self.runs.values()
        ]

    def requests(self) -> int:
        """The total number of requests to the model."""
        return sum(asked for _, asked in self.runs.values())


def compare(ways: dict[str, Setup], repeats: int) -> tuple[dict[str, Timing], dict[str, float]]:
    """Time the ways in turn. Raises SystemExit if they do not produce the same tokens."""
    timings = take_turns({name: timed(way.work) for name, way in ways.items()}, repeats)
    if any(way.tokens() != ways[LOCAL].tokens() for way in ways.values()):
        raise SystemExit("the ways give different tokens")
    kv = [run.last_kv for run, _ in ways[PLAIN].runs.values()]
    return timings, {
        "one_by_one_over_run_ahead": timings[PLAIN].median / timings[AHEAD].median,
        "requests_one_by_one_over_run_ahead": ways[PLAIN].requests() / ways[AHEAD].requests(),
        "remote_over_local": timings[PLAIN].median / timings[LOCAL].median,
        "cached_share": min(use.tokens_cached / use.tokens_sent for use in kv if use is not None),
    }


def measure(
    url: str, name: str, ways_of: Callable[[LanguageModel, int], dict[str, Setup]], repeats: int
) -> dict[str, tuple[dict[str, Timing], dict[str, float]]]:
    """Measure every number of paths over one link."""
    os.environ[operator.ADDRESS] = url
    remote = connect("llama.cpp", "embedded")
    found = {}
    for paths in PATHS:
        words = f"{counted(paths, 'path')}, {name}"
        found[words] = compare(ways_of(remote, paths), repeats)
        print(f"measured: {words}", file=sys.stderr, flush=True)
    remote.close()
    return found


def table(found: dict[str, tuple[dict[str, Timing], dict[str, float]]]) -> str:
    ways = (LOCAL, PLAIN, AHEAD)
    heads = ["most paths, delay", *ways, "run ahead is", "requests, one by one over run ahead"]
    rows = []
    for name, (timings, ratios) in found.items():
        cells = [
            f"{timing.median:.2f} ({timing.low:.2f} to {timing.high:.2f})"
            for timing in (timings[way] for way in ways)
        ]
        verdict = comparison(timings[AHEAD], timings[PLAIN])
        requests = f"{ratios['requests_one_by_one_over_run_ahead']:.2f}"
        rows.append([name, *cells, verdict, requests])
    return markdown_table(heads, rows).rstrip("\n")


def ratios_of(cases: dict[str, dict[str, float]]) -> dict[str, float]:
    """The ratios for which the project has targets: run-ahead in its intended case, one path over a
    network; the lowest cached share of all cases; and a whole tree against this process.
    """
    return {
        "one_by_one_over_run_ahead": cases["1 path, 20 ms added"]["one_by_one_over_run_ahead"],
        "cached_share": min(case["cached_share"] for case in cases.values()),
        "remote_over_local": cases["20 paths, nothing added"]["remote_over_local"],
    }


def main() -> None:
    parser = command_line(__doc__, "one prompt, one round and few tokens, to try it")
    parser.set_defaults(threads=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    prompts, repeats, new_tokens = (
        (PROMPTS[:1], 1, 10) if options.quick else (PROMPTS, MIN_REPEATS, 40)
    )
    local = load_model("embedded", device="cpu", dtype="float32")

    def ways_of(remote: LanguageModel, paths: int) -> dict[str, Setup]:
        plain = BranchingConfig(top_k=20, max_paths=paths, max_new_tokens=new_tokens)
        ahead = replace(plain, drafter="run-ahead")
        pairs = {LOCAL: (local, plain), PLAIN: (remote, plain), AHEAD: (remote, ahead)}
        return {name: Setup(*pair, prompts, {}) for name, pair in pairs.items()}

    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "embedded.gguf"
        write_embedded(file)
        with llama_server(file) as (url, _):
            for delay in ROUND_TRIPS:
                name = f"{1000 * delay:.0f} ms added" if delay else "nothing added"
                with delayed_link(url, delay) if delay else nullcontext(url) as address:
                    found |= measure(address, name, ways_of, repeats)
    seconds = {
        name: {way: timing.seconds for way, timing in timings.items()}
        for name, (timings, _) in found.items()
    }
    cases = {name: own for name, (_, own) in found.items()}
    result = {"seconds": seconds, "cases": cases, "ratios": ratios_of(cases)}
    publish(options, where("float32"), table(found), result)


if __name__ == "__main__":
    main()
