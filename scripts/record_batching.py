"""Record what the page Batching opens with: a class's requests, served one by one, in static batches
and by continuous batching.

    python scripts/record_batching.py

It is made as in the app: with the embedded model, and one core left free for the page. It takes
about half a minute, and nothing else should run on the machine.
"""

import os
from collections import defaultdict

import torch
from rich.progress import Progress

from app.server import bundled_runs
from app.server.workloads import CLASS, PRESETS
from eab import record
from eab.analysis.batching import (
    MAX_REPEATS,
    BatchingComparison,
    RequestEvent,
    Workload,
    dumps,
)
from eab.engine.batching import compare_ways
from eab.events import Event
from eab.figures.batching_table import headline
from eab.models.loading import load_model
from eab.models.machine import describe_machine


def main() -> None:
    """Serve the requests, and write the servings and a run file per request."""
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    model = load_model("embedded", device="cpu", dtype="float32")
    workload = Workload(PRESETS[CLASS], repeats=MAX_REPEATS)
    comparison, events = BatchingComparison(), defaultdict[int, list[Event]](list)
    with Progress() as bar:
        task = bar.add_task("Serving", total=1.0)
        for event in compare_ways(model, workload, describe_machine()):
            comparison.apply(event)
            bar.update(
                task,
                completed=comparison.progress.share,
                description=comparison.progress.words or "Serving",
            )
            if isinstance(event, RequestEvent):
                events[event.number].append(event.event)
        bar.update(task, completed=1.0)
    bundled_runs.BATCHING.mkdir(parents=True, exist_ok=True)
    for number in range(len(workload.requests)):
        record.save(events[number], bundled_runs.request_file(number))
    bundled_runs.BATCHING_FILE.write_bytes(dumps(comparison))
    print(headline(comparison))


if __name__ == "__main__":
    main()
