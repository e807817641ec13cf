"""The time to the first token of a visitor's own prompt, with SmolLM2 already loaded on the server.

    python benchmarks/first_token.py

The run is started as the page would start it, with the page's starting settings. A new prompt is
probed first; a prompt that was run before is not.
"""

import time
from dataclasses import replace

from chat_prompts import QUESTIONS

from app.server.model_cache import ModelCache
from app.server.worker import Worker
from eab.branching.presets import START
from eab.engine.job import run_job
from eab.engine.probe import PROBED
from eab.models.packaged import SMOLLM2
from eab.timing import Timing

SEEDS = range(3)
POLL = 0.005  # seconds


def seconds_to_the_first_token(worker: Worker, question: str, seed: int) -> float:
    """Start a run, wait for its first step, and stop it."""
    start = time.perf_counter()
    live = worker.start(run_job(question, replace(START, seed=seed), SMOLLM2.name))
    while not (live.state.run and live.state.run.steps):
        if not live.active:
            raise RuntimeError(f"the run has ended: {live.ending}")
        time.sleep(POLL)
    seconds = time.perf_counter() - start
    live.stop()
    while live.active:
        time.sleep(POLL)
    return seconds


def main() -> None:
    worker = Worker(ModelCache())
    seconds_to_the_first_token(worker, QUESTIONS[0], 0)  # loads the model
    model = worker.model(SMOLLM2.name)
    new, again = [], []
    for seed in SEEDS:
        for question in QUESTIONS:
            PROBED.pop(model, None)
            new.append(seconds_to_the_first_token(worker, question, seed))
            again.append(seconds_to_the_first_token(worker, question, seed))
    for name, seconds in (("a new prompt", new), ("a prompt that was run before", again)):
        timing = Timing(tuple(seconds))
        print(
            f"{name}: {timing.median:.2f} s (quartiles {timing.low:.2f} to {timing.high:.2f}, "
            f"slowest {max(seconds):.2f}, {len(seconds)} runs)"
        )
    worker.close()


if __name__ == "__main__":
    main()
