"""The tree engine against the bare forward pass, the other caches, and Hugging Face `generate`.

    python benchmarks/engine.py [--quick] [--busy] [--json FILE] [--table FILE]
    python benchmarks/engine.py --device cuda --dtype bfloat16 --shape 8b --tokens 200

The job is to generate N continuations of one prompt. In each round, all competitors do it one after
another, with the same weights, prompt, number of new tokens, dtype and threads. A short job is the
warm-up. Figures are medians over rounds with quartiles (eab.timing); ratios are ratios of medians.
KV bytes are measured from the tensors. `--quick` makes one round, which is not enough for
comparisons.

`--busy` measures only decode steps beside busy processes, for ways in which the threads of a step
wait for each other. OpenMP's threads wait by spinning. Beside busy processes, they spin on a processor
that the thread that they wait for needs. GOMP_SPINCOUNT limits it and is read when torch is loaded,
so each measurement is a process of its own: runs of 20 paths of the embedded model. The ways take
turns, alone and beside processes that only count.
"""

import gc
import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from competitors import (
    BarePass,
    Competitor,
    ContinuousBatching,
    Engine,
    Generate,
    Job,
    synchronize,
)
from published import (
    Placement,
    command_line,
    markdown_table,
    mib,
    offer_device,
    publish,
    ratio_lines,
    where,
)
from rich.console import Console
from shapes import SHAPES, engine_model, plain_model
from transformers import PreTrainedModel

from eab.config import BranchingConfig
from eab.engine.caches.base import ForwardBatch
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.formatting import counted
from eab.labs.measure_quantization import measure_machine, read_bytes
from eab.run import fold
from eab.run.events import StepTimed
from eab.timing import MIN_REPEATS, Timing, ratio_words, timed, with_spread

LARGEST = "8b"  # one by one, or with a cache that copies, a job takes minutes
HOST_PATHS, HOST_TOKENS, HOST_PROMPT = (1, 20, 64), 48, "Once upon a time"
ONE_THREAD, SPIN = "one", "GOMP_SPINCOUNT"
WAYS = {
    "two, as PyTorch does": {},
    f"two, {SPIN}=1000": {SPIN: "1000"},
    ONE_THREAD: {},
}
BUSY_PATHS, BUSY_TOKENS = 20, 24
BUSY, BUSY_ROUNDS = (0, 1, 2), 3  # processes beside the run
console = Console(stderr=True)


@dataclass
class Pair:
    """One model as loaded and as the engine uses it, with the same weights."""

    shape: str  # see `shapes.plain_model`
    plain: PreTrainedModel
    ours: HuggingFaceModel


def load(shape: str, placement: Placement) -> Pair:
    plain = plain_model(shape, placement)
    return Pair(shape, plain, engine_model(plain, shape))


def job_of(prompt: int, paths: int, new_tokens: int) -> Job:
    """A job with a prompt of random tokens, which is enough for speed measurements."""
    tokens = torch.randint(1, 4096, (prompt,), generator=torch.Generator().manual_seed(1)).tolist()
    return Job(tuple(tokens), paths, new_tokens)


def field_of(pair: Pair, job: Job, everybody: bool) -> list[Competitor]:
    """The tree, then its competitors. `everybody` adds slow ones if the model is small enough."""
    tree, on_cuda = Engine(pair.ours, job), pair.ours.kv_shape.uses_static_buffers
    competitors: list[Competitor] = [
        tree,
        BarePass(pair.plain, job),
        Generate(pair.plain, job, job.paths),
    ]
    if pair.shape != LARGEST:
        competitors += [Engine(pair.ours, job, "concat-cow"), Engine(pair.ours, job, "deep-copy")]
    if on_cuda:
        competitors += [
            ContinuousBatching(pair.plain, job),
            Generate(pair.plain, job, job.paths, static=True),
        ]
    if job.paths > 1:
        competitors.append(Generate(pair.plain, job, job.paths, shared_prompt=True))
    if everybody and job.paths > 1 and pair.shape != LARGEST and not on_cuda:
        competitors.append(Generate(pair.plain, job, 1))  # 20 times as slow as the batch on a GPU
    if everybody and pair.shape == "embedded":
        competitors.append(Engine(pair.ours, job, "recompute"))
    return competitors


def measure(competitors: Sequence[Competitor], rounds: int, deadline: float = math.inf) -> None:
    """Let all take turns for `rounds` or until the deadline. On CUDA, measure memory first."""
    if torch.cuda.is_available():
        for competitor in competitors:
            measure_memory(competitor)
    for number in range(rounds):
        if number and time.monotonic() > deadline:
            console.print(f"the time is up: {number} of {rounds} rounds")
            return
        for competitor in competitors:
            console.print(f"round {number + 1} of {rounds}: {competitor.name} ...")
            gc.collect()
            competitor.run()


def measure_memory(competitor: Competitor) -> None:
    """Record the allocator's peaks in a separate job. Its times do not count, because the allocator
    starts without memory and transformers compiles its forward pass for a static cache.
    """
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    competitor.run()
    competitor.measured.allocated = torch.cuda.max_memory_allocated() - allocated
    competitor.measured.reserved = torch.cuda.max_memory_reserved() - reserved
    competitor.measured.forget_jobs()


def warm_up(pair: Pair, job: Job) -> None:
    """Do a short job, because first passes are slow. Six tokens are enough to reach all paths."""
    for competitor in field_of(pair, Job(job.prompt, job.paths, 6), everybody=False):
        competitor.run()


def timing_of(competitor: Competitor) -> Timing:
    return Timing(tuple(competitor.measured.seconds))


def seconds_of(competitor: Competitor) -> float:
    """The median over the rounds."""
    return timing_of(competitor).median


def step_of(competitor: Competitor) -> float:
    """The median over all steps of all rounds."""
    return statistics.median(
        second for steps in competitor.measured.step_seconds for second in steps
    )


def reading_seconds(model: HuggingFaceModel) -> float:
    """Seconds to read the weights once, at the memory bandwidth measured here."""
    shape = model.kv_shape
    rows = measure_machine(shape.device, shape.dtype, MIN_REPEATS)
    return read_bytes(model) / statistics.median(row["bytes_per_second"] for row in rows)


def host_times(model: HuggingFaceModel, rounds: int) -> dict[str, float]:
    """The time of a decode step outside the forward pass, in ms and over that of the pass."""
    found: dict[str, float] = {}
    for paths in HOST_PATHS:
        steps = [step for _ in range(rounds) for step in host_steps(model, paths)]
        host, forward = map(statistics.median, zip(*steps, strict=True))
        found |= {f"host_ms_{paths}": 1000 * host, f"host_over_forward_{paths}": host / forward}
    return found


def host_steps(model: HuggingFaceModel, paths: int) -> list[tuple[float, float]]:
    """Seconds outside and in the forward pass, for each step that decodes all paths of a run."""
    config = BranchingConfig(policy="independent", max_paths=paths, max_new_tokens=HOST_TOKENS)
    plain, passes, steps = model.forward, [0.0], list[tuple[float, float]]()

    def timed(batches: Sequence[ForwardBatch]) -> torch.Tensor:
        start = time.perf_counter()
        logits = plain(batches)
        synchronize(model.kv_shape.device)
        passes.append(time.perf_counter() - start)
        return logits

    with mock.patch.object(model, "forward", timed):
        start = time.perf_counter()
        for event in event_stream(model, Request(HOST_PROMPT, config)):
            if isinstance(event, StepTimed):
                seconds, start = time.perf_counter() - start, time.perf_counter()
                steps += [(seconds - passes[-1], passes[-1])] if event.tokens == paths else []
    return steps


def ratios_of(competitors: Sequence[Competitor], row_bytes: int) -> dict[str, float]:
    """The ratios for which the project has targets, except the one for reading the weights."""
    by_name = {competitor.name: competitor for competitor in competitors}
    tree, bare = competitors[0], competitors[1]
    measured, batched = tree.measured, by_name["generate, one batch"]
    assert measured.rows is not None
    assert measured.kv_bytes is not None
    assert measured.spare_rows is not None
    assert batched.measured.kv_bytes is not None
    ratios = {
        "step_over_bare_pass": step_of(tree) / step_of(bare),
        "batched_over_tree": seconds_of(batched) / seconds_of(tree),
        "kv_over_distinct": (measured.kv_bytes - measured.spare_rows * row_bytes)
        / (measured.rows * row_bytes),
        "batched_kv_over_tree_kv": batched.measured.kv_bytes / measured.kv_bytes,
    }
    others = {
        "shared_prompt_batch_over_tree": "generate, one batch, prompt prefilled once",
        "continuous_batching_over_tree": "continuous batching of transformers",
        "compiled_static_over_tree": "generate, one batch, static cache",
        "one_by_one_over_tree": "generate, one by one",
        "concat_cow_over_tree": "engine, cache concat-cow",
        "deep_copy_over_tree": "engine, cache deep-copy",
        "recompute_over_tree": "engine, cache recompute",
    }
    return ratios | {
        key: seconds_of(by_name[name]) / seconds_of(tree)
        for key, name in others.items()
        if name in by_name
    }


def table(competitors: Sequence[Competitor]) -> str:
    heads = ["", "seconds (quartiles)", "as long as the tree", "tokens through the model"]
    heads += ["KV rows", "KV bytes held", "peak", "allocated, peak", "reserved, peak"]
    rows = []
    tree = timing_of(competitors[0])
    for competitor in competitors:
        measured, timing = competitor.measured, timing_of(competitor)
        cells = [
            competitor.name,
            with_spread(timing, "{:.2f}".format),
            "" if competitor is competitors[0] else ratio_words(timing, tree),
            f"{measured.tokens:,}",
            "-" if measured.rows is None else f"{measured.rows:,}",
        ]
        sizes = (measured.kv_bytes, measured.peak_bytes, measured.allocated, measured.reserved)
        rows.append([*cells, *map(mib, sizes)])
    return markdown_table(heads, rows)


def standard(pair: Pair, job: Job, rounds: int, deadline: float) -> tuple[str, dict[str, Any]]:
    """Measure this job. Returns the text and the figures as data."""
    warm_up(pair, job)
    competitors = field_of(pair, job, everybody=True)
    measure(competitors, rounds, deadline)
    ratios = ratios_of(competitors, pair.ours.card.row_bytes)
    reading = reading_seconds(pair.ours)
    ratios["step_over_reading_weights"] = step_of(competitors[0]) / reading
    text = (
        f"Shape {pair.shape}, {job}, weights stored {pair.ours.stored.layout}.\n\n{table(competitors)}\n"
        f"One step of {job.paths} paths takes {step_of(competitors[0]) * 1000:.0f} ms, the bare pass of the same "
        f"tokens {step_of(competitors[1]) * 1000:.0f} ms: {ratios['step_over_bare_pass']:.2f} times. Reading the "
        f"weights once takes {reading * 1000:.1f} ms here; the step takes "
        f"{ratios['step_over_reading_weights']:.2f} times that.\n"
    )
    if pair.shape == "embedded":
        ratios |= host_times(pair.ours, rounds)
        text += "\n" + ratio_lines({k: v for k, v in ratios.items() if k.startswith("host_")})
    result = {
        "seconds": {competitor.name: competitor.measured.seconds for competitor in competitors},
        "kv_bytes": {competitor.name: competitor.measured.kv_bytes for competitor in competitors},
        "ratios": ratios,
    }
    return text, result


def step_milliseconds(threads: int) -> float:
    """A step of a whole run, in this process: the median of some runs."""
    if threads == 1:  # else the number is left to PyTorch, as in a program of a user
        torch.set_num_threads(1)
    model = engine_model(plain_model("embedded", Placement("cpu", torch.float32)), "embedded")
    config = BranchingConfig(
        policy="independent",
        max_paths=BUSY_PATHS,
        max_new_tokens=BUSY_TOKENS,
        threshold_unit="nats",
    )
    run = timed(lambda: fold(event_stream(model, Request(HOST_PROMPT, config))), time.perf_counter)
    run()  # the first one is slower
    return 1000 * statistics.median(run() for _ in range(3)) / BUSY_TOKENS


def measured(way: str, threads: int, busy: int) -> float:
    """The same in a process of its own, beside `busy` processes that only count."""
    code = f"import engine; print(engine.step_milliseconds({1 if way == ONE_THREAD else threads}))"
    # Here, eab has set it, and the other process would inherit it.
    environment = {name: value for name, value in os.environ.items() if name != SPIN}
    with ExitStack() as stack:
        for _ in range(busy):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(other.wait)
            stack.callback(other.kill)
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            env=environment | WAYS[way],
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout)


def busy(threads: int, rounds: int) -> tuple[str, dict[str, Any]]:
    """The table and the ratios of all ways, measured in turns."""
    found: dict[tuple[str, int], list[float]] = {key: [] for key in itertools.product(WAYS, BUSY)}
    for _ in range(rounds):
        for (way, count), values in found.items():
            values.append(measured(way, threads, count))
    rows, ratios = [], {}
    for way in WAYS:
        timings = [Timing(tuple(found[way, count])) for count in BUSY]
        rows.append([way, *(with_spread(timing, "{:.1f}".format) for timing in timings)])
        for count, timing in zip(BUSY, timings, strict=True):
            ratios[f"{way}, beside {count}"] = timing.median / timings[0].median
    heads = ["threads", "ms of a step, alone (quartiles)"]
    heads += [f"beside {counted(count, 'busy process')}" for count in BUSY[1:]]
    return markdown_table(heads, rows), {"ratios": ratios}


def main() -> None:
    parser = command_line(__doc__, quick="one round")
    parser.add_argument(
        "--busy", action="store_true", help="only steps on the CPU beside busy processes"
    )
    parser.add_argument("--shape", default="135m", choices=SHAPES)
    parser.add_argument("--prompt", type=int, default=300, help="tokens of the prompt")
    parser.add_argument("--paths", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=40, help="new tokens of each path")
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="start no further round after this many seconds",
    )
    offer_device(parser)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    torch.set_num_threads(options.threads)
    placement = Placement.of(options)
    rounds = 1 if options.quick else MIN_REPEATS
    if options.busy:
        text, result = busy(options.threads, 1 if options.quick else BUSY_ROUNDS)
    else:
        job = job_of(options.prompt, options.paths, options.tokens)
        text, result = standard(load(options.shape, placement), job, rounds, deadline)
    publish(options, where(str(placement), placement.device), text, result)


if __name__ == "__main__":
    main()
