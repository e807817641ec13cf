"""A model on a llama.cpp server on this machine, against the same model in this process.

    python benchmarks/remote.py --json remote.json

Every round runs each way once, one after the other, with the same prompts, seeds and settings; all
ways must give the same tokens. The ratios are medians over rounds of the seconds of two ways in the
same round; their spread is the smallest and the largest of them. `cached_share` is the share of the
tokens sent that the server did not have to compute, as the server says.

The server computes in one thread. There is no network between: a round trip takes about a
millisecond, so run-ahead saves less here than it does over a network.
"""

import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for scripts

from published import command_line, publish, where

from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.events import StepTimed
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.remote import operator
from eab.remote.loading import connect
from eab.run import Run, fold
from scripts.llama_server import llama_server
from scripts.write_gguf import write_gguf

PROMPTS = ("Once upon a time, there was a", "One day, a girl named", "The cat sat on the")
BASE = BranchingConfig(top_k=20)
SHAPES = {
    "a tree of 20 paths": {},
    "a tree of 4 paths": {"max_paths": 4},
    "one path": {"max_paths": 1},
}
AHEAD = replace(BASE, drafter="run-ahead")


@dataclass(frozen=True)
class Measured:
    """One way in one round: seconds, requests, and its runs."""

    seconds: float
    requests: int
    runs: list[Run]


def measure(model: LanguageModel, config: BranchingConfig, prompts: Sequence[str]) -> Measured:
    """Run each prompt once."""
    start = time.perf_counter()
    runs, requests = [], 0
    for seed, prompt in enumerate(prompts):
        events = list(generate(model, Request(prompt, replace(config, seed=seed))))
        requests += sum(isinstance(event, StepTimed) for event in events)
        runs.append(fold(events))
    return Measured(time.perf_counter() - start, requests, runs)


def tokens(measured: Measured) -> list[list[list[int]]]:
    """The tokens of all paths of all runs."""
    return [[[token.token for token in path.tokens] for path in run.paths] for run in measured.runs]


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, float]:
    """The median over rounds, and the smallest and the largest."""
    found = [one / other for one, other in zip(numerators, denominators, strict=True)]
    return {"median": statistics.median(found), "low": min(found), "high": max(found)}


def compare(
    models: tuple[LanguageModel, LanguageModel],
    shape: str,
    prompts: Sequence[str],
    rounds: int,
    new_tokens: int,
) -> dict[str, object]:
    """All ways with trees of one shape.

    Args:
        models: The one in this process, and the one on the server.
        shape: A name in SHAPES.
        prompts: What to continue.
        rounds: How often, besides the warm-up.
        new_tokens: Per path.

    Raises:
        SystemExit: The ways do not give the same tokens.
    """
    local, remote = models
    settings = SHAPES[shape] | {"max_new_tokens": new_tokens}
    plain, ahead = replace(BASE, **settings), replace(AHEAD, **settings)
    ways = {"local": (local, plain), "one by one": (remote, plain), "run ahead": (remote, ahead)}
    times: dict[str, list[Measured]] = {name: [] for name in ways}
    for _ in range(rounds + 1):  # the first warms up
        for name, (model, config) in ways.items():
            times[name].append(measure(model, config, prompts))
        if not all(tokens(found[-1]) == tokens(times["local"][-1]) for found in times.values()):
            raise SystemExit(f"{shape}: the ways give different tokens")
    seconds = {name: [one.seconds for one in found[1:]] for name, found in times.items()}
    kv = [run.last_kv() for run in times["one by one"][-1].runs]
    cached = [one.tokens_cached / one.tokens_sent for one in kv if one is not None]
    return {
        "one_by_one_over_run_ahead": ratio(seconds["one by one"], seconds["run ahead"]),
        "requests_one_by_one_over_run_ahead": times["one by one"][-1].requests
        / times["run ahead"][-1].requests,
        "remote_over_local": ratio(seconds["one by one"], seconds["local"]),
        "cached_share": min(cached),
    }


def table(ratios: dict[str, dict[str, object]]) -> str:
    """The ratios as Markdown."""
    lines = ["| trees | " + " | ".join(next(iter(ratios.values()))) + " |", "|---|---|---|---|---|"]
    for shape, found in ratios.items():
        cells = [
            f"{one['median']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
            if isinstance(one, dict)
            else f"{one:.2f}"
            for one in found.values()
        ]
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Start the server, measure, and publish."""
    parser = command_line(__doc__, "one prompt, one round and few tokens, to try it")
    options = parser.parse_args()
    prompts, rounds, new_tokens = (PROMPTS[:1], 1, 10) if options.quick else (PROMPTS, 5, 40)
    local = load_model("embedded", device="cpu", dtype="float32")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "embedded.gguf"
        write_gguf(file)
        with llama_server(file) as (url, _):
            os.environ[operator.ADDRESS] = url
            remote = connect("llama.cpp", "embedded")
            ratios = {
                shape: compare((local, remote), shape, prompts, rounds, new_tokens)
                for shape in SHAPES
            }
            remote.close()
    publish(options, where("float32"), table(ratios), {"ratios": ratios})


if __name__ == "__main__":
    main()
