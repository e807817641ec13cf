"""Makes the bundled runs again, each with its prompt, settings and model: `make runs`.

The chat model's runs are made if it is installed (`eab models get smollm2`). A new run: save one with
`eab run ... --save assets/runs/NAME.eab`, and describe it in `assets/runs/catalogue.json`;
tests/test_bundled_runs.py checks what the catalogue says. Timings are recorded by
scripts/record_measurements.py.
"""

from pathlib import Path
from typing import Final

from eab.analysis.run_comparison import independent_config
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.engine.models.packaged import SMOLLM2
from eab.engine.models.sources import EMBEDDED
from eab.engine.request import Request
from eab.lessons import bundled_runs
from eab.run import fold, record
from eab.run.events import Labelled, LabelRule, RunStarted

# What a run is labelled with, so that its page says how likely something is
LABELS: Final = {
    "cake.eab": (
        LabelRule("the dog", "contains", "the dog"),
        LabelRule("Anna", "contains", "Anna"),
    )
}


def main() -> None:
    model = load_model(EMBEDDED, "cpu", "float32")
    chat = load_model(SMOLLM2.name, "cpu", "float32") if SMOLLM2.is_here else None
    for recording in bundled_runs.recordings():
        file = bundled_runs.FOLDER / recording.file
        if maker := chat if recording.model else model:
            make_again(maker, file, file)
    for name in LABELS:
        label(bundled_runs.FOLDER / name)
    compared = fold(record.load(bundled_runs.FOLDER / bundled_runs.COMPARED))
    samples = Request(compared.started.prompt, independent_config(compared, "tokens"))
    record.save(event_stream(model, samples), bundled_runs.SAMPLES)
    quantized = load_model(EMBEDDED, "cpu", "float32", weights="int4")
    make_again(quantized, bundled_runs.FOLDER / bundled_runs.STORY, bundled_runs.QUANTIZED)


def make_again(model: HuggingFaceModel, source: Path, target: Path) -> None:
    """Make the run of one file again, and write it to another or to the same."""
    started = next(one for one in record.load(source) if isinstance(one, RunStarted))
    events = list(event_stream(model, request_of(started)))
    record.save(events, target)
    print(f"{target.name}: {len(events)} events, {len(fold(events).leaves())} leaves")


def label(file: Path) -> None:
    """Label the run of a file, instead of any earlier labels."""
    events = [event for event in record.load(file) if not isinstance(event, Labelled)]
    record.save([*events, Labelled(len(fold(events).steps), LABELS[file.name])], file)


def request_of(started: RunStarted) -> Request:
    if started.messages:
        return Request("", started.config, messages=started.messages)
    return Request(started.prompt, started.config)


if __name__ == "__main__":
    main()
