"""The contract of all laboratories: each one starts, reports its progress, ends, stops on request,
raises its errors, and has a file that is read as it was written or refused with the reason.
"""

import gzip
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from eab.assets import ASSETS
from eab.config import BranchingConfig
from eab.engine.caches.growth import CostModel
from eab.engine.loop import stop_when
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.errors import ModelError, RecordError
from eab.formatting import counted
from eab.labs import measure_bmc as bmc
from eab.labs import measure_quantization as measure
from eab.labs import measure_runs as runs
from eab.labs import measurement
from eab.labs.batching import ServingRequest, Workload
from eab.labs.measurement import OfRun
from eab.labs.tuning import report
from eab.labs.tuning import sweeping as tuning
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.variants import cache_variants
from eab.lessons import bundled_runs
from eab.run.events import Pause, Progressed, RunEnded

PROMPT = "The sun was hot, so the children"
SHORT = BranchingConfig(max_new_tokens=4)
CACHES = ("tree", "recompute")
WORKLOAD = Workload(tuple(ServingRequest(PROMPT, length) for length in (2, 3)), slots=2, repeats=2)


@dataclass(frozen=True)
class Lab:
    """A laboratory, as these tests use it."""

    measure: Callable[[HuggingFaceModel], Iterator[Any]]  # its shortest measurement
    report: Callable[[], Any]  # an empty report
    begins: type  # its first event
    file: str  # a recorded report
    results: Any  # the module that reads and writes such files
    units: tuple[dict[str, str], ...] = ({"seconds": "s"},)  # that its file says, if any


LABS = {
    "batching": Lab(
        lambda model: runs.compare_ways(model, WORKLOAD, "here"),
        measurement.Report,
        measurement.LabBegan,
        "batching/servings.json.gz",
        measurement,
    ),
    "bmc": Lab(
        lambda model: bmc.measure("rejection", model, 2, repeats=1),
        measurement.Report,
        measurement.LabBegan,
        "bmc/rejection.json.gz",
        measurement,
    ),
    "quantization": Lab(
        lambda model: measure.measure_formats(
            lambda weights: load_model("embedded", "cpu", "float32", weights), PROMPT, repeats=1
        ),
        measurement.Report,
        measurement.LabBegan,
        "quantization/formats.json.gz",
        measurement,
    ),
    "variants": Lab(
        lambda model: runs.run_variants(
            model, Request(PROMPT, SHORT), "caches", cache_variants(CACHES), repeats=1
        ),
        measurement.Report,
        measurement.LabBegan,
        "caches/times.json.gz",
        measurement,
    ),
    "tuning": Lab(
        lambda model: tuning.report_sweep(
            model,
            [TuningPrompt("a", Question(PROMPT, (), {}, ""))],
            Grid({"policy": ["fair", "greedy"]}, SHORT, (1, 2)),
        ),
        report.TuningReport,
        measurement.LabBegan,
        "tuning/sweep.json.gz",
        SimpleNamespace(
            load=lambda file: report.loads(file.read_bytes(), str(file)),
            dumps=report.dumps,
        ),
        units=(),
    ),
}


def applied(report: Any, events: Iterable[Any]) -> list[Any]:
    """Apply the events to the report, and return them as a list."""
    seen = []
    for event in events:
        report.apply(event)
        seen.append(event)
    return seen


def no_calibration(calibrator: object) -> Generator[Progressed, None, CostModel]:
    yield Progressed(0.5, "calibrating")
    return CostModel(1e-6, 1e-6, 1e-6)


@pytest.fixture(params=list(LABS))
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Each laboratory in turn, with as little to measure as possible."""
    fables = measure.held_out_texts()[:1]
    monkeypatch.setattr(measure, "held_out_texts", lambda: fables)
    monkeypatch.setattr(measure, "known_entropies", dict)
    monkeypatch.setattr(measure, "ROWS", (1,))
    monkeypatch.setattr(measure, "WEIGHT_FORMATS", ("as-loaded", "int8"))
    monkeypatch.setattr("eab.labs.measure_bmc.calibrate", no_calibration)
    for module in (runs, bmc):  # a fast machine would not pause at all
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setitem(measure.SIZES, "cpu", measure.Sizes(2**16, 64, 1))
    return LABS[request.param]


def test_a_laboratory_starts_shows_progress_and_ends(lab: Lab, embedded: HuggingFaceModel) -> None:
    report = lab.report()
    events = applied(report, lab.measure(embedded))
    assert isinstance(events[0], lab.begins)
    shares = [event.share for event in events if isinstance(event, Progressed)]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    assert events[-1] == report.ended == RunEnded(0, "finished")
    assert report.complete


def test_a_laboratory_stops_on_request_and_keeps_its_results(
    lab: Lab, embedded: HuggingFaceModel
) -> None:
    report = lab.report()
    events = applied(report, stop_when(lab.measure(embedded), lambda: True))
    assert sum(isinstance(event, Pause) for event in events) <= 1  # it may stop inside a pass
    assert report.ended == events[-1]
    assert report.ended.stopped
    assert isinstance(events[0], lab.begins | RunEnded)


def test_the_error_of_a_failed_forward_pass_is_raised(
    lab: Lab, embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a kernel failed")

    monkeypatch.setattr(LlamaForCausalLM, "forward", breaks)
    report, events = lab.report(), lab.measure(embedded)
    with pytest.raises((RuntimeError, ModelError), match="a kernel failed"):
        applied(report, events)
    assert report.ended is None
    assert not report.complete


@pytest.fixture
def content(lab: Lab) -> dict[str, Any]:
    """The content of a recorded file; of a sweep, only a few cells."""
    whole = json.loads(gzip.decompress((ASSETS / lab.file).read_bytes()))
    for name, column in whole["tables"].get("cells", {}).items():
        whole["tables"]["cells"][name] = column[:5]
    return whole


def test_a_file_is_read_as_it_was_written(
    lab: Lab, content: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    report = lab.results.load(file)
    assert report.ended is not None
    assert report.tables
    written = lab.results.dumps(report, *lab.units)
    file.write_bytes(written if isinstance(written, bytes) else written.encode())
    again = lab.results.load(file)
    assert (again.began, again.ended) == (report.began, report.ended)
    for table in report.tables:
        assert again.rows(table) == report.rows(table)
    assert lab.results.dumps(again, *lab.units) == written, "the same points give the same bytes"


DAMAGES: dict[str, Any] = {
    "another laboratory": {"format": "eab-other"},
    "another version": {"version": 2},
    "a number for its tables": {"tables": 5},
    "a list of numbers as a value": {"tables": {"x": {"a": [[1]]}}},
    "rows without names": {"tables": {"x": [7]}},
    "columns of different lengths": {"tables": {"x": {"a": [1], "b": []}}},
    "a beginning of other types": {"began": {"model": 1}},
}


@pytest.mark.parametrize("changed", DAMAGES.values(), ids=DAMAGES)
def test_a_changed_file_is_refused(
    lab: Lab, content: dict[str, Any], changed: dict[str, Any], tmp_path: Path
) -> None:
    refused(lab, tmp_path, gzip.compress(json.dumps(content | changed).encode()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        gzip.compress(b"[]"),
        gzip.compress(b"{}")[:10] + b"no deflate",
    ],
    ids=["empty", "no text", "deep", "a list", "no gzip"],
)
def test_a_file_of_another_kind_is_refused(lab: Lab, data: bytes, tmp_path: Path) -> None:
    refused(lab, tmp_path, data)


def test_a_truncated_file_is_refused(lab: Lab, tmp_path: Path) -> None:
    refused(lab, tmp_path, (ASSETS / lab.file).read_bytes()[:-20])


def test_what_was_made_names_runs_and_rows_only_if_there_are_any() -> None:
    recorded = bundled_runs.caches()
    events = [OfRun(name, event) for name, run in recorded.runs.items() for event in run.events]
    assert measurement.Report().made == "0 rows"
    assert measurement.Report().collect(events).made == counted(len(recorded.runs), "run")
    assert recorded.made.startswith(f"{counted(len(recorded.runs), 'run')}, ")


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        measurement.load(tmp_path / "none.json")


def refused(lab: Lab, folder: Path, data: bytes) -> None:
    file = folder / "strange.json"
    file.write_bytes(data)
    with pytest.raises(RecordError, match=r"strange\.json"):
        lab.results.load(file)
