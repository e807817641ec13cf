"""The recorded runs, comparisons and measurements that are bundled with the project."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from eab.assets import ASSETS
from eab.errors import LessonError
from eab.formatting import quoted
from eab.labs import measurement
from eab.labs.batching import request_name
from eab.labs.bmc import Experiment
from eab.labs.measurement import OfRun, Report
from eab.labs.tuning.report import TuningReport, loads
from eab.run import RunFold, fold_prefix, record
from eab.run.events import Event, RunStarted

FOLDER: Final = ASSETS / "runs"
MEASURED: Final = ".json.gz"  # the ending of recorded measurements
CACHES: Final = FOLDER.parent / "caches"  # the same run with each cache
DRAFT_LENGTHS: Final = FOLDER.parent / "speculation"
LOOKUPS: Final = FOLDER.parent / "prompt-lookup"  # two prompts: `edit` and `story`
TIMES: Final = f"times{MEASURED}"  # in these folders: how long the repeats of their runs took
BATCHING: Final = FOLDER.parent / "batching"  # the same requests served in several ways
BATCHING_FILE: Final = BATCHING / f"servings{MEASURED}"
FORMATS: Final = FOLDER.parent / "quantization" / f"formats{MEASURED}"
BMC: Final = FOLDER.parent / "bmc"
EVALUATION: Final = FOLDER.parent / "evaluation" / "embedded.json"
TUNING: Final = FOLDER.parent / "tuning" / "sweep.json.gz"
POLICIES: Final = TUNING.with_name("policies.json.gz")
STORY: Final = "bridge.eab"  # a run of the embedded model that pages begin with
QUANTIZED: Final = FORMATS.parent / "int4.eab"  # `STORY`, made again with 4-bit weights
COMPARED: Final = "coins.eab"  # the run that the Compare page shows first
SAMPLES: Final = FOLDER.parent / "samples" / COMPARED  # independent samples at its budget


@dataclass(frozen=True, slots=True)
class Recording:
    """A bundled run."""

    file: str
    title: str
    teaches: str  # the idea that the run shows, in a few words
    shows: str
    model: str = ""  # the model and its licence; empty for the embedded model

    @property
    def description(self) -> str:
        """What the run shows, and the model that made it."""
        return f"{self.shows} Made by {self.model}." if self.model else self.shows


@lru_cache(maxsize=1)
def recordings() -> tuple[Recording, ...]:
    """All bundled runs; the app opens with the first."""
    return tuple(
        Recording(**entry)
        for entry in json.loads((FOLDER / "catalogue.json").read_text(encoding="utf-8"))
    )


def named(file: str) -> Recording:
    """The bundled run with this file name; LessonError if there is none."""
    recording = next((recording for recording in recordings() if recording.file == file), None)
    if recording is None:
        files = ", ".join(recording.file for recording in recordings())
        raise LessonError(f"there is no bundled run {quoted(file)}; choose one of: {files}")
    return recording


@lru_cache(maxsize=1)
def prompts() -> frozenset[str]:
    """The prompts of all bundled runs."""
    return frozenset(
        event.prompt
        for recording in recordings()
        for event in events_of(recording)
        if isinstance(event, RunStarted)
    )


@lru_cache(maxsize=32)
def events_of(recording: Recording) -> tuple[Event, ...]:
    """The events of a bundled run."""
    return tuple(record.load(FOLDER / recording.file))


@lru_cache(maxsize=1)
def caches() -> Report:
    """The same run with each cache."""
    return _load_variants(CACHES)


@lru_cache(maxsize=1)
def draft_lengths() -> Report:
    """The same run without drafts, and with the draft model at several draft lengths."""
    return _load_variants(DRAFT_LENGTHS)


@lru_cache(maxsize=2)
def prompt_lookup(prompt: Literal["edit", "story"]) -> Report:
    """The chat model's answer to a prompt, without drafts and with those of prompt-lookup."""
    return _load_variants(LOOKUPS / prompt)


@lru_cache(maxsize=1)
def batching() -> Report:
    """The same requests served in several ways, with the run of each request."""
    report = measurement.load(BATCHING_FILE)
    requests = report.began.given if report.began is not None else ()
    return _with_runs(report, BATCHING, [request_name(number) for number in range(len(requests))])


@lru_cache(maxsize=1)
def formats() -> Report:
    """The embedded model in every weight format."""
    return measurement.load(FORMATS)


@lru_cache(maxsize=8)
def bmc(experiment: Experiment) -> Report:
    """The report of an experiment with spare rows."""
    return measurement.load(BMC / f"{experiment}{MEASURED}")


@lru_cache(maxsize=1)
def samples() -> RunFold:
    """Independent samples for the prompt of `COMPARED`, at its budget in tokens."""
    return fold_prefix(record.load(SAMPLES))


@lru_cache(maxsize=1)
def evaluation() -> Report:
    """The result of `eab evaluate --json` for the embedded model on the bundled questions."""
    return measurement.load(EVALUATION)


@lru_cache(maxsize=1)
def quantized() -> RunFold:
    """The run `STORY`, made again with 4-bit weights."""
    return fold_prefix(record.load(QUANTIZED))


@lru_cache(maxsize=1)
def tuning() -> TuningReport:
    """The embedded model at several settings, on prompts with known distributions."""
    return loads(TUNING.read_bytes(), str(TUNING))


@lru_cache(maxsize=1)
def policies() -> TuningReport:
    """Every policy of a chat model, at several path limits, on questions with known answers."""
    return loads(POLICIES.read_bytes(), str(POLICIES))


def _load_variants(folder: Path) -> Report:
    report = measurement.load(folder / TIMES)
    given = report.began.given if report.began is not None else ()
    return _with_runs(report, folder, [row["variant"] for row in given])


def _with_runs(report: Report, folder: Path, names: Iterable[str]) -> Report:
    for name in names:
        report.collect(OfRun(name, event) for event in record.load(file_of(name, folder)))
    return report


def file_of(variant: str, folder: Path) -> Path:
    """The path of the recorded run of this variant or request."""
    return folder / f"{variant.replace(' ', '-')}{record.SUFFIX}"
