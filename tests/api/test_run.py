"""A run as a value: its events, files, what-ifs, answers and tables."""

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

import eab
from eab import Run, record
from eab.analysis.answers import group_answers
from eab.analysis.uncertainty import uncertainty
from eab.api.run import as_run
from eab.errors import ConfigError, RecordError
from eab.events import RunStarted
from eab.lessons import bundled_runs
from eab.what_if.resimulate import resimulate

COIN = bundled_runs.events_of(bundled_runs.named("coin.eab"))


@pytest.fixture
def run() -> Run:
    return Run(COIN)


def test_every_prefix_of_the_events_is_a_run_that_keeps_them() -> None:
    for length in range(1, len(COIN) + 1):
        run = Run(COIN[:length])
        assert run.events == list(COIN[:length])
        assert sum(sample.weight for sample in run.samples) == pytest.approx(1)


def test_a_saved_run_is_loaded_as_it_was(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "coin.eab"
    for save in (run.save, lambda to: eab.save(run, to), lambda to: eab.save(run.events, to)):
        save(path)
        for loaded in (Run.load(path), eab.load(str(path)), as_run(path)):
            assert loaded.events == record.load(path) == run.events
            assert loaded.samples == run.samples
    eab.save_html(path, tmp_path / "coin.html")
    assert (tmp_path / "coin.html").read_text("utf-8") == run.to_html()


def test_what_is_made_of_a_run_is_what_its_parts_make(run: Run) -> None:
    assert run.what_if(threshold=1.5).events == list(resimulate(run.events, 1.5).events)
    assert run.what_if(r=8).started.config.r == 8
    assert run.answers("sentence") == group_answers(run, "sentence")
    assert run.uncertainty("sentence") == uncertainty(run, group_answers(run, "sentence"))
    table = run.to_pandas()
    assert isinstance(table, pd.DataFrame)
    assert [*table["text"]] == [sample.text for sample in run.samples]
    assert len(ElementTree.fromstring(run.to_graphml()).findall(".//{*}node")) == len(run.paths)
    with pytest.raises(ConfigError):
        run.what_if(threshold=-1)


def test_a_notebook_shows_the_tree_and_the_first_texts() -> None:
    shown = Run(COIN)._repr_html_()
    assert "<svg" in shown
    assert shown.count("<li>") <= 5
    [first, *_] = Run(COIN).samples
    assert f"{first.weight:.1%}" in shown
    started = next(event for event in COIN if isinstance(event, RunStarted))
    hostile = Run([started])
    hostile.started = started.__class__(
        **{name: getattr(started, name) for name in started.__match_args__} | {"prompt": "<script>"}
    )
    assert "<script>" not in hostile._repr_html_()


@pytest.mark.parametrize("given", [3, None, 1.5, [3], ["a"], [{}], object(), iter([])])
def test_what_is_no_run_is_refused(given: object, tmp_path: Path) -> None:
    for take in (as_run, lambda run: eab.save(run, tmp_path / "x.eab"), eab.show):
        with pytest.raises(RecordError):
            take(given)
    for path in (3, None, b"x", ["a"]):
        with pytest.raises(RecordError, match="the path is a"):
            Run.load(path)
        with pytest.raises(RecordError, match="the path is a"):
            Run(COIN).save(path)
