"""Record the measurements that the page BMC opens with.

    python scripts/record_bmc.py [EXPERIMENT ...]

They are made as in the app: with the embedded model, and one core left free for the page. This
takes minutes, and nothing else should run on the machine.
"""

import os
import sys
from pathlib import Path

import torch
from rich.progress import Progress

from eab.bmc.experiments import measure
from eab.bmc.results import EXPERIMENTS, Experiment, Report, dumps
from eab.models.loading import load_model

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "bmc"
ROWS = 1024  # KV rows that an experiment writes


def main() -> None:
    """Run the experiments that are named, or all of them, and write their reports."""
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    model = load_model("embedded", device="cpu", dtype="float32")
    chosen: list[Experiment] = [name for name in EXPERIMENTS if name in sys.argv[1:]] or list(
        EXPERIMENTS
    )
    with Progress() as bar:
        for name in chosen:
            task, report = bar.add_task(name, total=1.0), Report()
            for event in measure(name, model, ROWS):
                report.apply(event)
                bar.update(
                    task,
                    completed=report.progress.share,
                    description=f"{name}: {report.progress.words}",
                )
            (FOLDER / f"{name}.json").write_text(dumps(report), encoding="utf-8")
            bar.update(task, completed=1.0, description=name)


if __name__ == "__main__":
    main()
