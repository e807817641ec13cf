"""Records what the Tune page opens with: the embedded model with several settings, on prompts with
known answers.

    python scripts/record_tuning.py

It takes about a minute. Only the times in the cells depend on the machine.
"""

import os

import torch
from rich.progress import Progress

from eab.labs.tuning import default_sweep
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.job import report_sweep
from eab.labs.tuning.quantities import COSTS, GAINS
from eab.labs.tuning.report import TuningReport, dumps
from eab.labs.tuning.sentences import answer_sentence, over_words
from eab.lessons import bundled_runs
from eab.models.loading import load_model


def main() -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    model = load_model("embedded", device="cpu", dtype="float32")
    report = TuningReport()
    with Progress() as bar:
        task = bar.add_task("Sweep", total=1.0)
        for event in report_sweep(model, default_sweep.prompts(), default_sweep.grid()):
            report.apply(event)
            bar.update(task, completed=report.progress.share, description=report.progress.words)
    if not report.complete:
        raise SystemExit(f"the sweep did not end as it should: {report.ended}")
    bundled_runs.TUNING.parent.mkdir(parents=True, exist_ok=True)
    bundled_runs.TUNING.write_bytes(dumps(report))
    for gain in GAINS.values():
        points = setting_points(report.cells, COSTS["tokens"], gain)
        print(f"{gain.label}: {answer_sentence(points, gain)} {over_words(points, report.cells)}")


if __name__ == "__main__":
    main()
