"""Records the measurements bundled for Memory, Speculative, Batching, BMC, Quantization and Tune.

    python scripts/record_measurements.py [NAME ...] [--repeats N]

They are made as in the app: with the embedded model (the `lookup-` ones and `policies` with the chat
model, see `eab models get smollm2`), and one core left free for the page. Nothing else should run on
the machine. Before anything is written, the comparisons behind the pages' sentences are checked (`scripts.claims.objections`). If there are too few repeats, or the machine
was too disturbed to find a difference, the old recording stays. The script then says why and exits
with code 1.
"""

import argparse
import gzip
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import torch
from rich.progress import Progress

from eab.config import BranchingConfig
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.engine.models.machine import describe_machine
from eab.engine.models.packaged import SMOLLM2
from eab.engine.models.sources import EMBEDDED, EMBEDDED_DRAFT
from eab.engine.request import Request
from eab.errors import RunsError
from eab.labs.batching import BATCHING, CLASS, MAX_REPEATS, PRESETS, Workload
from eab.labs.bmc import EXPERIMENTS, LABS, Experiment
from eab.labs.caches import CACHES_LAB
from eab.labs.drafts import DRAFTS
from eab.labs.measure_bmc import measure
from eab.labs.measure_quantization import measure_formats
from eab.labs.measure_runs import compare_ways, run_variants
from eab.labs.measurement import Lab, LabEvent, OfRun, Report, dumps
from eab.labs.quantization import FORMATS, formats_answer
from eab.labs.tuning import sweeping
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.grid import COSTS, GAINS
from eab.labs.tuning.pictures import answer_sentence, sweep_measures
from eab.labs.tuning.report import TuningReport
from eab.labs.tuning.report import dumps as dumps_sweep
from eab.labs.tuning.sweeping import report_sweep
from eab.labs.variants import (
    agree,
    cache_variants,
    draft_length_variants,
    variants_sentence,
)
from eab.lessons import bundled_runs
from eab.run import record
from eab.run.events import Event, Progressed
from eab.weight_formats import AS_LOADED
from scripts import claims
from scripts.claims import Claim, objections

REPEATS: Final = 9
KV_ROWS: Final = 1024  # written by a BMC experiment
STORY: Final = "Once upon a time, there was a little girl named Lily. She"
CACHE_CONFIG: Final = BranchingConfig(
    r=16,
    kv_limit_mib=1024,
    temperature=0.8,
    entropy_threshold=1.2,
    max_new_tokens=64,
    min_fork_weight=0.03,
    max_paths=16,
)
TEXT_CONFIG: Final = BranchingConfig(
    max_paths=1, entropy_threshold=20.0, max_new_tokens=120, seed=4
)
# A text to be edited, which the answer repeats, and one that nothing foretells
LOOKUPS: Final = {
    "edit": "Correct the spelling:\n\nThe train to the coast leaves at nine. We will bring bread, "
    "cheese and two botles of cider. The tickets are in the blue box on the kitchen table. Please "
    "bring the big umbrela, because it may rain.",
    "story": "Write a story about a lighthouse.",
}
LOOKUP_CONFIG: Final = replace(TEXT_CONFIG, max_new_tokens=64, temperature=0.5, top_p=0.9)
AnyEvent = TypeVar("AnyEvent")
# Passes on the events of a measurement, and shows their progress.
Watch = Callable[[Iterable[Any]], Iterator[Any]]


class Measured(NamedTuple):
    sentence: str  # what its page says about it
    claims: Sequence[Claim]  # the comparisons in that sentence
    write: Callable[[], None]  # replaces the recording


Measurement = Callable[[HuggingFaceModel, int, Watch], Measured]


def bundled_prompt(file: str) -> str:
    return bundled_runs.events_of(bundled_runs.named(file))[0].prompt


def save(report: Report, lab: Lab, file: Path) -> None:
    """Write a report as gzipped JSON; the same rows give the same bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(dumps(report, lab.units).encode("ascii"), mtime=0))


def measure_runs(
    lab: Lab, events: Iterable[LabEvent]
) -> tuple[Report, Callable[[Path, Path], None]]:
    """A report with runs, and a function that writes these into a folder, and it into a file."""
    report, runs = Report(), defaultdict[str, list[Event]](list)
    for event in events:
        report.apply(event)
        if isinstance(event, OfRun):
            runs[event.name].append(event.event)

    def write(folder: Path, file: Path) -> None:
        save(report, lab, file)
        for name, own in runs.items():
            record.save(own, bundled_runs.file_of(name, folder))

    return report, write


def measure_variants(lab: Lab, folder: Path, events: Iterable[LabEvent]) -> Measured:
    """A run file per variant, and the times of the repeats; RunsError if tokens differ."""
    report, write = measure_runs(lab, events)
    if not agree(report):
        raise RunsError(variants_sentence(report))
    made = partial(write, folder, folder / bundled_runs.TIMES)
    of_lab = claims.of_caches if lab is CACHES_LAB else claims.of_draft_lengths
    return Measured(lab.answer(report), of_lab(report), made)


def measure_caches(model: HuggingFaceModel, repeats: int, watch: Watch) -> Measured:
    """For the Memory page: one run with each cache."""
    request = Request(bundled_prompt("ball.eab"), CACHE_CONFIG)
    events = run_variants(model, request, "caches", cache_variants(), repeats=repeats)
    return measure_variants(CACHES_LAB, bundled_runs.CACHES, watch(events))


def measure_draft_lengths(model: HuggingFaceModel, repeats: int, watch: Watch) -> Measured:
    """For the Speculative page: one text with each draft length."""
    variants, request = draft_length_variants("model"), Request(STORY, TEXT_CONFIG)
    draft = load_model(EMBEDDED_DRAFT, "cpu", "float32")
    events = run_variants(model, request, "drafts", variants, draft, repeats)
    return measure_variants(DRAFTS, bundled_runs.DRAFT_LENGTHS, watch(events))


def measure_prompt_lookup(name: str, _: HuggingFaceModel, repeats: int, watch: Watch) -> Measured:
    """For the Speculative page: an answer of the chat model with each draft length."""
    model = load_model(SMOLLM2.name, "cpu", "float32")
    variants, request = (
        draft_length_variants("prompt-lookup"),
        Request(LOOKUPS[name], LOOKUP_CONFIG),
    )
    events = run_variants(model, request, "drafts", variants, repeats=repeats)
    return measure_variants(DRAFTS, bundled_runs.LOOKUPS / name, watch(events))


def measure_batching(model: HuggingFaceModel, repeats: int, watch: Watch) -> Measured:
    """For the Batching page: a class's requests, served in three ways."""
    workload = Workload(PRESETS[CLASS], repeats=min(repeats, MAX_REPEATS))
    events = compare_ways(model, workload, describe_machine(model.card.device))
    report, write = measure_runs(BATCHING, watch(events))
    made = partial(write, bundled_runs.BATCHING, bundled_runs.BATCHING_FILE)
    return Measured(BATCHING.answer(report), claims.of_batching(report), made)


def measure_experiment(
    name: Experiment, model: HuggingFaceModel, repeats: int, watch: Watch
) -> Measured:
    """For one tab of the BMC page."""
    report = Report().collect(watch(measure(name, model, KV_ROWS, repeats)))
    file = bundled_runs.BMC / f"{name}{bundled_runs.MEASURED}"
    return Measured(
        LABS[name].answer(report),
        claims.OF_EXPERIMENTS[name](report),
        partial(save, report, LABS[name], file),
    )


def measure_weights(model: HuggingFaceModel, repeats: int, watch: Watch) -> Measured:
    """For the Quantization page: the model in every weight format."""
    prompt = bundled_prompt(bundled_runs.STORY)

    def load(weights: str) -> HuggingFaceModel:
        return model if weights == AS_LOADED else load_model(EMBEDDED, "cpu", "float32", weights)

    report = Report().collect(watch(measure_formats(load, prompt, repeats)))
    write = partial(save, report, FORMATS, bundled_runs.FORMATS)
    return Measured(formats_answer(report), claims.of_formats(report), write)


def measure_sweep(model: HuggingFaceModel, _: int, watch: Watch) -> Measured:
    """For the Tune page: several settings, on prompts with known answers."""
    swept = report_sweep(model, sweeping.recorded_prompts(), sweeping.recorded_grid())
    return measured_sweep(watch(swept), bundled_runs.TUNING)


def measure_policies(_: HuggingFaceModel, __: int, watch: Watch) -> Measured:
    """For the Tune page: every policy of the chat model."""
    model = load_model(SMOLLM2.name, "cpu", "float32")
    swept = report_sweep(model, sweeping.policies_prompts(), sweeping.policies_grid())
    return measured_sweep(watch(swept), bundled_runs.POLICIES)


def measured_sweep(events: Iterable[LabEvent], file: Path) -> Measured:
    report = TuningReport()
    for event in events:
        report.apply(event)
    if not report.complete:
        raise RunsError(f"the sweep did not end as it should: {report.ended}")
    gain = next(one for name, one in GAINS.items() if getattr(report.cells[0], name) is not None)
    points = setting_points(report.cells, COSTS["tokens"], gain)
    sentence = f"{answer_sentence(points, gain)} {sweep_measures(points, report.cells)}"

    def write() -> None:
        file.write_bytes(dumps_sweep(report))

    return Measured(sentence, [], write)


MEASUREMENTS: Final[Mapping[str, Measurement]] = {
    "caches": measure_caches,
    "draft-lengths": measure_draft_lengths,
    **{f"lookup-{name}": partial(measure_prompt_lookup, name) for name in LOOKUPS},
    "batching": measure_batching,
    **{f"bmc-{name}": partial(measure_experiment, name) for name in EXPERIMENTS},
    "weights": measure_weights,
    "sweep": measure_sweep,
    "policies": measure_policies,
}


def publish(name: str, measured: Measured) -> bool:
    """Write a recording if its sentence holds; otherwise print why not and return False."""
    print(f"{name}: {measured.sentence}")
    reasons = objections(measured.claims)
    for words in reasons:
        print(f"{name} is not recorded. {words}.")
    if not reasons:
        measured.write()
    return not reasons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(MEASUREMENTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of: {names}")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"default {REPEATS}")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in MEASUREMENTS]:
        parser.error(f"{unknown[0]} is not among them: {names}")
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    model = load_model(EMBEDDED, device="cpu", dtype="float32")
    written = []
    for name in options.names or MEASUREMENTS:
        with Progress() as bar:
            measured = MEASUREMENTS[name](model, options.repeats, partial(watched, bar, name))
        written.append(publish(name, measured))
    sys.exit(0 if all(written) else 1)


def watched(bar: Progress, name: str, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """The same events; also shows their progress in a bar."""
    task = bar.add_task(name, total=1.0)
    for event in events:
        if isinstance(event, Progressed):
            bar.update(task, completed=event.share, description=f"{name}: {event.words}")
        yield event
    bar.update(task, completed=1.0, description=name)


if __name__ == "__main__":
    main()
