"""The machine really runs out of memory in the middle of a run, and has enough again for the next one.

The test runs this file as a process, which prints how each run of a worker ended, as JSON.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT

from app.server.model_cache import ModelCache
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.job import run_job
from eab.engine.models.loading import load_model

ROOM = 30 * 2**20  # bytes for the run: enough for its first steps
LARGE = BranchingConfig(
    max_new_tokens=200, max_paths=128, entropy_threshold=0.1, min_fork_weight=0.0, kv_limit_mib=4096
)
SMALL = BranchingConfig(max_new_tokens=8, max_paths=4)


def bytes_in_use() -> int:
    """The bytes of virtual memory that this process has reserved."""
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if "VmSize" in one]
    return int(line.split()[1]) * 2**10


def ending(worker: Worker, prompt: str, config: BranchingConfig) -> tuple[str, str, int]:
    """How a run ends, why, and after how many decode steps."""
    run = worker.start(run_job(prompt, config, "embedded"))
    while run.active:
        run.mark_watched()
        time.sleep(0.05)
    return (*run.ending, len(run.state.started_run().steps))


def run_three_times() -> None:
    """Run once, run out of memory, and run again."""
    import resource  # missing on Windows

    model = load_model("embedded")
    worker = Worker(ModelCache(lambda _: model))
    found = [ending(worker, "Once upon a time", SMALL)]
    resource.setrlimit(resource.RLIMIT_AS, (bytes_in_use() + ROOM, resource.RLIM_INFINITY))
    found.append(ending(worker, "Once upon a time " * 40, LARGE))
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    found.append(ending(worker, "Once upon a time", SMALL))
    print(json.dumps(found))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_a_run_that_uses_up_the_memory_fails_with_a_message_and_the_next_one_works() -> None:
    process = subprocess.run(
        [sys.executable, __file__],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not process.returncode, process.stderr
    before, large, after = json.loads(process.stdout)
    assert before == after == ["finished", "", 8]
    reason, why, steps = large
    assert reason == "failed"
    assert why.startswith("this machine has too little memory for the run. Its tokens")
    assert 0 < steps < 200
    assert not process.stderr


if __name__ == "__main__":
    run_three_times()
