"""The page BMC without a browser: recorded measurements, a run at any r, a new measurement, Stop,
errors.
"""

import json
from pathlib import Path

import pytest
from page_walk import opened, run_to_its_end, words
from streamlit.testing.v1 import AppTest

from app.state import measurements
from eab.analysis.kv_demand import demand_of
from eab.errors import RecordError
from eab.labs.bmc import pictures as bmc_experiments
from eab.labs.bmc import run_pictures as bmc
from eab.labs.bmc.results import (
    EXPERIMENTS,
    Experiment,
    Report,
    RTimed,
    dumps,
    load,
    overheads,
    predicted_r,
)
from eab.labs.bmc.tables import allocations_table, points_table
from eab.lessons import bundled_runs
from eab.run import fold

TABS: dict[Experiment, str] = {
    "growth": "Sensitivity to r",
    "lengths": "Copy or compute",
    "rejection": "Rejected drafts",
    "sizes": "Other model sizes",
    "memory": "Memory",
}


@pytest.fixture
def page() -> AppTest:
    return opened("bmc")


def at_experiment(page: AppTest, name: Experiment) -> AppTest:
    """The page with the tab of this experiment open."""
    page.session_state["bmc_tab"] = TABS[name]
    return page.run()


def measure(page: AppTest, name: Experiment) -> None:
    """Press the button of this experiment."""
    at_experiment(page, name).button(key=f"run_{name}").click().run()


def test_the_first_visit_shows_recorded_measurements_and_a_run(page: AppTest) -> None:
    assert not page.exception
    assert bmc_experiments.growth_sentence(measurements.bundled("growth")) in words(page)
    assert len(page.get("plotly_chart")) == 2 + 1 + 1  # the run, sensitivity to r, and its fit
    captions = " ".join(caption.value for caption in page.main.caption)
    assert captions.count("Recorded:") == 1
    assert "up to 3.2 times" in captions
    assert "abstract" in captions


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_tab_shows_its_recorded_measurement_and_its_button(name: Experiment) -> None:
    page = at_experiment(opened("bmc"), name)
    assert not page.exception
    assert bmc_experiments.EXPERIMENT_FIGURES[name].sentence(measurements.bundled(name)) in words(
        page
    )
    assert page.button(key=f"run_{name}").label == "Measure"


def test_moving_r_recomputes_the_run_without_running_anything(page: AppTest) -> None:
    demand = demand_of(fold(bundled_runs.events_of(bundled_runs.recordings()[0])))
    assert demand is not None
    for r in (1, 64):
        page.select_slider(key="bmc_r").set_value(r).run()
        assert not page.exception
        assert bmc.strip_sentence(demand.at(r), r) in words(page)
    page.select_slider(key="bmc_r").set_value("auto").run()
    assert not page.exception
    assert any(text.startswith("At r = auto") for text in words(page))


def test_a_reload_finds_what_was_measured_here(page: AppTest) -> None:
    measure(page, "memory")
    run_to_its_end(page, "bmc_stop")
    measure(page, "sizes")
    page.button(key="bmc_stop").click().run()
    run_to_its_end(page, "bmc_stop")
    at_experiment(page, "memory")
    reloaded = opened("bmc", **{name: str(page.query_params[name]) for name in page.query_params})
    assert not reloaded.exception
    assert words(reloaded) == words(page)
    measured = [
        caption.value for caption in reloaded.main.caption if "Measured here" in caption.value
    ]
    assert measured == [
        caption.value for caption in page.main.caption if "Measured here" in caption.value
    ]
    assert len(measured) == 1
    found = str(page.query_params["bmc_memory"])
    elsewhere = opened("bmc", bmc_growth=found, bmc_sizes="<b>", experiment="<b>")
    assert not elsewhere.exception
    assert words(elsewhere) == words(opened("bmc")), "it is found in its own slot only"


def test_a_reload_finds_the_measurement_that_is_being_made(page: AppTest) -> None:
    measure(page, "sizes")
    reloaded = opened("bmc", bmc_sizes=str(page.query_params["bmc_sizes"]))
    assert not reloaded.exception
    assert not reloaded.button(key="bmc_stop").disabled
    reloaded.button(key="bmc_stop").click().run()
    for tab in (page, reloaded):
        run_to_its_end(tab, "bmc_stop")
        assert not tab.exception
        captions = [caption.value.replace("\\", "") for caption in tab.caption]
        assert any(one.startswith("Other model sizes: Stopped.") for one in captions)


def test_stop_leaves_the_recorded_one(page: AppTest) -> None:
    before = words(at_experiment(page, "sizes"))
    measure(page, "sizes")
    assert not page.button(key="bmc_stop").disabled
    page.button(key="bmc_stop").click().run()
    run_to_its_end(page, "bmc_stop")
    assert not page.exception
    assert words(page) == before


def test_a_model_that_cannot_be_loaded_is_explained(page: AppTest) -> None:
    page.segmented_control(key="set_model_kind").set_value("Other").run()
    page.text_input(key="set_model_other").set_value("./no_such_folder").run()
    measure(page, "lengths")
    run_to_its_end(page, "bmc_stop")
    assert "there is no such folder" in page.error[0].value.replace("\\", "")
    assert not page.exception


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_bundled_reports_are_complete_and_survive_their_file(name: str, tmp_path: Path) -> None:
    report = measurements.bundled(name)  # type: ignore[arg-type]
    assert report.complete
    assert report.began is not None
    assert report.began.experiment == name
    copy = tmp_path / "report.json"
    copy.write_text(dumps(report), encoding="utf-8")
    assert load(copy).points == report.points
    table = points_table(report)
    assert len(table) >= len([point for point in report.points if not hasattr(point, "costs")])


def test_the_bundled_u_curve_has_the_ends_that_the_model_predicts() -> None:
    report = measurements.bundled("growth")
    found, best = overheads(report.of(RTimed)), predicted_r(report)
    assert best is not None
    assert found[1].median > 3 * found[best].median
    assert found[max(found)].median > 3 * found[best].median


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "eab-bmc", "version": 1}', '{"format": "eab-bmc"']
)
def test_a_broken_report_is_refused_in_words(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=r"broken\.json"):
        load(file)


def test_nothing_measured_yet_is_explained_and_drawn() -> None:
    for name in EXPERIMENTS:
        assert (
            bmc_experiments.EXPERIMENT_FIGURES[name].sentence(Report()) == "Nothing measured yet."
        )
        json.loads(bmc_experiments.EXPERIMENT_FIGURES[name].figure(Report()).to_json())


def test_the_table_of_a_run_counts_what_the_strip_shows() -> None:
    demand = demand_of(fold(bundled_runs.events_of(bundled_runs.recordings()[0])))
    assert demand is not None
    table = allocations_table(demand, (1, 8, 64), None)
    for row in table.to_dict("records"):
        steps = demand.at(int(row["r"]))
        assert row["rows_copied"] == sum(step.copied for step in steps)
        assert row["most_bytes_held"] == max(step.held for step in steps) * demand.row_bytes
    assert list(table["rows_copied"]) == sorted(table["rows_copied"], reverse=True)


def test_an_experiment_runs_here_and_does_not_ask_for_the_settings_of_a_run() -> None:
    page = opened()
    page.segmented_control(key="set_chat").set_value(
        True
    )  # the embedded model has no chat template
    page.slider(key="set_max_new_tokens").set_value(256).run()
    page.switch_page("../pages/bmc.py").run()
    measure(page, "memory")
    run_to_its_end(page, "bmc_stop")
    assert not page.exception
    assert not page.error
    [caption] = [one.value for one in page.main.caption if "Measured here" in one.value]
    assert "embedded" in caption
