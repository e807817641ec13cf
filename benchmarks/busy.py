"""A decode step beside one busy process, for ways in which the threads of a step wait for each other:
the section `--busy` of engine.py.

OpenMP's threads wait by spinning. Beside another busy process, they spin on a processor that the
thread that they wait for needs. GOMP_SPINCOUNT limits it and is read when torch is loaded, so each
measurement is a process of its own: steps of 20 paths after a prompt of 300, SmolLM2-135M shape. The
ways take turns, quiet and beside a process that only counts.
"""

import os
import statistics
import subprocess
import sys

import torch
from published import Placement, markdown_table
from shapes import engine_model, plain_model

from eab.labs.decode_steps import prefilled_tree, time_step
from eab.timing import Timing, with_spread

FEW = "GOMP_SPINCOUNT=1000"
WAYS = {"as PyTorch does": {}, FEW: {"GOMP_SPINCOUNT": "1000"}, "one thread": {}}
PROMPT, PATHS, STEPS = 300, 20, 40


def step_milliseconds(threads: int) -> float:
    """The median of the steps, in this process."""
    torch.set_num_threads(threads)
    model = engine_model(plain_model("135m", Placement("cpu", torch.float32)), "135m")
    cache = prefilled_tree(
        model.kv_shape, PROMPT, STEPS, padded=False, paths=PATHS, steps=STEPS + 1
    )
    times = [
        time_step(lambda batch: model.forward([batch]), cache, range(1, PATHS + 1)).seconds
        for _ in range(STEPS)
    ]
    return 1000 * statistics.median(times[STEPS // 4 :])


def measured(way: str, threads: int, busy: bool) -> float:
    """The same in a process of its own, perhaps beside one that only counts."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        used = 1 if way == "one thread" else threads
        command = [sys.executable, __file__, str(used)]
        done = subprocess.run(
            command, env=os.environ | WAYS[way], capture_output=True, text=True, check=True
        )
        return float(done.stdout)
    finally:
        if other is not None:
            other.kill()
            other.wait()


def busy(threads: int, rounds: int) -> tuple[str, dict[str, float]]:
    """The table and the ratios of all ways, measured in turns."""
    found: dict[tuple[str, bool], list[float]] = {
        (way, busy): [] for way in WAYS for busy in (False, True)
    }
    for _ in range(rounds):
        for way, is_busy in found:
            found[way, is_busy].append(measured(way, threads, is_busy))
    median = {key: statistics.median(values) for key, values in found.items()}
    rows = []
    for way in WAYS:
        spreads = (Timing(tuple(found[way, is_busy])) for is_busy in (False, True))
        cells = (with_spread(timing, "{:.0f}".format) for timing in spreads)
        rows.append([way, *cells, f"{median[way, True] / median[way, False]:.2f}"])
    heads = ["threads wait", "ms of a step, quiet (quartiles)", "beside a busy process"]
    return markdown_table([*heads, "times quiet"], rows), {
        "busy_over_quiet": median[FEW, True] / median[FEW, False],
        "quiet_over_default": median[FEW, False] / median["as PyTorch does", False],
    }


if __name__ == "__main__":
    print(step_milliseconds(int(sys.argv[1])))
