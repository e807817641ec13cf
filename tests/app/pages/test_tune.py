"""The page Tune without a browser: the recorded sweep, one of one's own, Stop, names, errors, the
recommender, and the ways to Explore and Compare.
"""

from itertools import cycle, product
from pathlib import Path

import pytest
from page_walk import opened, run_to_its_end, words
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.server import default_sweep
from app.server.named_store import NamedStore
from app.server.sweep_store import default_sweep_store
from app.state.process import worker
from app.widgets import sweep_editor
from app.widgets.sweep_editor import OWN
from eab.figures.charts import NOTHING_YET
from eab.labs.tuning.evaluation_pictures import ROW_HEADINGS, evaluation_sentence
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.prompt_sets import SETS, bundled_prompts
from eab.labs.tuning.quantities import COSTS, GAINS
from eab.labs.tuning.report import TuningReport, dumps
from eab.labs.tuning.sentences import pareto_sentence, saving_sentence
from eab.lessons import bundled_runs

STOP, PILOT_STOP = "tune_stop", "tune_pilot_stop"
NEED_ANSWERS = ("correct", "brier")  # gains that need prompts with right answers


@pytest.fixture
def page() -> AppTest:
    return opened("tune")


def small(page: AppTest, own: str = "") -> AppTest:
    """Choose a sweep of a few cells: two thresholds, two path limits, two policies, two seeds."""
    page.slider(key="tune_threshold_count").set_value(2)
    page.slider(key="tune_seeds").set_value(2)
    page.slider(key="tune_max_new_tokens").set_value(6)
    page.get("button_group")
    page.session_state["tune_max_paths"] = [4, 8]
    page.session_state["tune_branch_factor"] = [3]
    page.session_state["tune_policy"] = ["fair", "independent"]
    if own:
        page.selectbox(key="tune_set").set_value(OWN).run()
        page.text_area(key="tune_own").set_value(own)
    return page.run()


def captions(page: AppTest) -> str:
    return " ".join(caption.value for caption in page.main.caption)


def swept(page: AppTest, own: str = "My favorite color is\nI tossed a coin. It") -> AppTest:
    small(page, own)
    return run_to_its_end(page.button(key="tune_start").click().run(), STOP).run()


def listing(page: AppTest) -> AppTest:
    """Open the list of sweeps."""
    page.session_state["open_sweep"] = True
    return page.run()


def test_the_first_visit_shows_the_recorded_sweep(page: AppTest) -> None:
    assert not page.exception
    assert not page.error
    recorded = bundled_runs.tuning()
    cost, gain = COSTS["tokens"], GAINS["distribution_error"]
    points = setting_points(recorded.cells, cost, gain)
    assert pareto_sentence(points, cost, gain) in words(page)
    assert saving_sentence(recorded.cells) in captions(page)
    assert "Recorded: embedded, float32, on " in captions(page)
    assert len(page.get("plotly_chart")) == 3
    assert len(page.table[0].value) == len(points)


def test_the_recorded_sweep_is_the_one_that_the_widgets_say() -> None:
    recorded = bundled_runs.tuning()
    assert recorded.complete
    configs = {cell.config for cell in recorded.cells}
    grid = default_sweep.grid()
    assert len(configs) == len(grid.configs()) * default_sweep.SEEDS
    assert {cell.prompt for cell in recorded.cells} == {
        one.question.prompt for one in default_sweep.prompts()
    }
    assert any(cell.made == "resimulated" for cell in recorded.cells)
    assert bundled_runs.TUNING.stat().st_size < 200_000


def test_every_bundled_set_is_on_offer_and_gives_as_many_prompts_as_asked() -> None:
    assert default_sweep.SET_LABELS.keys() == SETS.keys()
    for name in SETS:
        assert len(default_sweep.some_prompts(name, 3)) == 3
        assert len(default_sweep.some_prompts(name, 1000)) == len(bundled_prompts(name))


def test_every_cost_and_every_gain_has_its_pictures(page: AppTest) -> None:
    gains = [name for name in GAINS if name not in NEED_ANSWERS]
    for cost, gain in zip(cycle(COSTS), gains, strict=False):
        page.selectbox(key="tune_cost").set_value(cost)
        page.selectbox(key="tune_gain").set_value(gain).run()
        assert not page.exception
        assert NOTHING_YET not in words(page)
        assert ("resimulated cells have no time" in captions(page)) == (cost == "seconds")


def test_the_recorded_sweep_has_points_for_every_cost_and_gain() -> None:
    cells = bundled_runs.tuning().cells
    settings = len(setting_points(cells, COSTS["tokens"], GAINS["distinct_texts"]))
    for cost, gain in product(COSTS.values(), GAINS.values()):
        found = setting_points(cells, cost, gain)
        assert bool(found) == (gain.column not in NEED_ANSWERS)
        assert len(found) in (0, settings) or cost.column == "seconds"


def test_a_sweep_of_ones_own_and_a_reload_finds_it(page: AppTest) -> None:
    small(page, "My favorite color is\nI tossed a coin. It")
    assert "Run: 24 cells; the model makes 16 runs at least" in captions(page)
    page = run_to_its_end(page.button(key="tune_start").click().run(), STOP)
    listing(page)
    assert not page.exception
    assert not page.error
    assert page.radio(key="tune_shown").value == "Sweep 1"
    assert "Means over 2 prompts and 2 seeds." in captions(page)
    assert "Measured here: embedded" in captions(page)
    assert any("of 6 settings" in text for text in words(page))
    assert "about " in captions(page)  # the next sweep's time is now known
    reloaded = opened("tune", tuning=str(page.query_params["tuning"]))
    assert "Measured here: embedded" in captions(reloaded)
    assert page.table[0].value.equals(reloaded.table[0].value)


def test_every_policy_can_be_weighed_against_independent_sampling(page: AppTest) -> None:
    small(page)
    page.slider(key="tune_prompts").set_value(1)
    page.session_state["tune_policy"] = [*sweep_editor.POLICIES]
    page = run_to_its_end(page.run().button(key="tune_start").click().run(), STOP).run()
    assert not page.exception
    assert not page.error
    settings = [*page.table[0].value.reset_index()["Setting"]]
    for policy in ("fair", "original"):
        assert sum(f"policy {policy}" in one for one in settings) == 4, "thresholds, path limits"
    for policy in ("independent", "arithmetic", "stochastic-beam"):
        assert sum(f"policy {policy}" in one for one in settings) == 2, "path limits"
    assert any("of 14 settings" in text for text in words(page))


def test_where_right_answers_are_known_calibration_can_be_weighed(page: AppTest) -> None:
    labels = [GAINS[name].label for name in NEED_ANSWERS]
    assert not {*labels} & {*page.selectbox(key="tune_gain").options}, "chances have no right one"
    page.selectbox(key="tune_set").set_value("facts").run()
    page.slider(key="tune_prompts").set_value(2)
    small(page)
    run_to_its_end(page.button(key="tune_start").click().run(), STOP).run()
    assert {*labels} <= {*page.selectbox(key="tune_gain").options}
    page.selectbox(key="tune_gain").set_value("brier").run()
    assert not page.exception
    assert any(text.startswith("Brier score of the answers (policy") for text in words(page))


def test_sweeps_are_kept_under_names(page: AppTest) -> None:
    upload_some(page)
    assert page.radio(key="tune_shown").value == "mine.json.gz"
    page.text_input(key="tune_name").set_value("colours").run()
    assert page.radio(key="tune_shown").options == ["Recorded sweep", "colours"]
    page.text_input(key="tune_name").set_value("Recorded sweep").run()
    assert "Another sweep has this name" in page.error[0].value
    page.radio(key="tune_shown").set_value("Recorded sweep").run()
    assert not page.exception
    assert "Recorded: embedded" in captions(page)
    page.radio(key="tune_shown").set_value("colours").run()
    assert "500 cells" in captions(page)


def some_cells() -> TuningReport:
    some = TuningReport()
    for event in (bundled_runs.tuning().began, *bundled_runs.tuning().cells[:500]):
        some.apply(event)
    return some


def upload_some(page: AppTest) -> AppTest:
    upload = listing(page).file_uploader(key="tune_upload")
    return upload.set_value(("mine.json.gz", dumps(some_cells()), "")).run()


def test_a_downloaded_sweep_is_opened_again_and_anything_else_is_refused(page: AppTest) -> None:
    upload_some(page)
    assert not page.exception
    assert page.radio(key="tune_shown").value == "mine.json.gz"
    assert "500 cells" in captions(page)
    page.file_uploader(key="tune_upload").set_value(("bad.gz", b"no sweep", "")).run()
    assert "bad.gz cannot be read" in page.error[0].value.replace("\\", "")
    assert page.radio(key="tune_shown").value == "mine.json.gz"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedStore[TuningReport]:
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "runs.sqlite"))
    found = default_sweep_store()
    assert found is not None
    return found


def save_some(store: NamedStore[TuningReport], name: str) -> str:
    return store.save(name, some_cells()).id


def test_a_sweep_is_saved_and_opened_in_another_tab(store: NamedStore[TuningReport]) -> None:
    page = listing(opened("tune"))
    page.text_input(key="name_sweep").set_value("kept coins")
    page.button(key="save_sweep").click().run()
    assert not page.exception
    [saved] = store.all()
    assert saved.name == "kept coins"
    assert store.load(saved.id)[1].cells == bundled_runs.tuning().cells
    other = listing(opened("tune"))
    other.selectbox(key="saved_sweep").set_value(saved.id).run()
    assert not other.exception
    assert other.radio(key="tune_shown").value == "kept coins"
    assert "2,160 cells" in captions(other)
    linked = listing(opened("tune", sweep=saved.id))
    assert linked.radio(key="tune_shown").value == "kept coins"
    assert saved.id in linked.query_params["sweep"]
    assert saved.id in other.query_params["sweep"]
    linked.radio(key="tune_shown").set_value("Recorded sweep").run()
    assert "sweep" not in linked.query_params


def test_a_saved_sweep_is_renamed_deleted_and_brought_back(
    store: NamedStore[TuningReport],
) -> None:
    saved = save_some(store, "one")
    page = listing(opened("tune"))
    page.selectbox(key="saved_sweep").set_value(saved).run()
    assert "500 cells" in captions(page)
    page.text_input(key=f"rename_{saved}_sweep").set_value("two")
    page.button(key="rename_sweep").click().run()
    assert [one.name for one in store.all()] == ["two"]
    assert page.radio(key="tune_shown").options == ["Recorded sweep", "two"]
    page.button(key="delete_sweep").click().run()
    assert store.all() == []
    assert "500 cells" in captions(page), "what the tab shows stays"
    page.button(key="undo_sweep").click().run()
    assert [one.name for one in store.all()] == ["two"]
    assert not page.exception


def test_a_saved_sweep_that_cannot_be_opened_is_explained(store: NamedStore[TuningReport]) -> None:
    saved = save_some(store, "one")
    page = listing(opened("tune"))
    store.delete(saved)
    page.selectbox(key="saved_sweep").set_value(saved).run()
    assert not page.exception
    assert "This sweep is not saved on this server" in page.error[0].value
    assert page.radio(key="tune_shown").value == "Recorded sweep"


def test_a_link_to_a_sweep_that_is_not_there_is_explained(
    store: NamedStore[TuningReport],
) -> None:
    page = opened("tune", sweep="no-such-sweep")
    assert not page.exception
    assert "This sweep is not saved on this server" in page.error[0].value
    assert "Recorded: embedded" in captions(page)


def test_saving_sweeps_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAB_STORE", "off")
    page = listing(opened("tune"))
    assert not page.exception
    assert "Saved sweeps are switched off on this server" in captions(page)


def test_stop_keeps_what_is_there(page: AppTest) -> None:
    page.button(key="tune_start").click().run()
    assert not page.button(key=STOP).disabled
    live = worker().remembered[-1]
    while not live.state.cells:
        assert live.active, live.message
        page.run()
    page.button(key=STOP).click().run()
    run_to_its_end(page, STOP).run()
    assert not page.exception
    assert 0 < len(live.state.cells) < len(bundled_runs.tuning().cells)
    assert "Stopped after" in captions(page)
    assert "Measured here: embedded" in captions(page)
    assert page.get("plotly_chart")


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("  \n", "there are 0 prompts; write 1 to 24"),
        ("\n".join(map(str, range(30))), "30 prompts"),
    ],
)
def test_prompts_that_cannot_be_swept_are_explained(page: AppTest, own: str, message: str) -> None:
    page.selectbox(key="tune_set").set_value(OWN).run()
    page.text_area(key="tune_own").set_value(own).run()
    page.button(key="tune_start").click().run()
    assert message in page.error[0].value.replace("There", "there")
    assert "Recorded: embedded" in captions(page)


def test_nothing_chosen_for_a_setting_is_explained(page: AppTest) -> None:
    page.session_state["tune_max_paths"] = []
    page.run()
    assert "No value is chosen for max paths" in captions(page)


def test_a_cell_opens_from_a_tab_that_never_was_on_explore() -> None:
    page = AppTest.from_file(MAIN, default_timeout=60)
    page.switch_page("../pages/tune.py").run()
    page.button(key="tune_open").click().run()
    assert not page.exception
    assert page.session_state["prompt"] == default_sweep.prompts()[0].question.prompt


def test_a_cell_opens_on_explore_as_the_tree_that_it_was(page: AppTest) -> None:
    swept(page)
    shown = next(one.value for one in page.caption if one.value.startswith("This cell"))
    page.button(key="tune_open").click().run()
    assert not page.exception
    run_to_its_end(page)
    assert page.session_state["prompt"] == "My favorite color is"
    assert page.session_state["set_min_fork_weight"] == 0.0
    live = page.session_state["run_slot"][0].state.run
    assert f"{live.tokens_through_model()} tokens" in shown.replace(",", "")
    assert f"{len(live.leaves())} path" in shown


def test_the_settings_of_a_cell_go_into_the_controls_of_explore(page: AppTest) -> None:
    page.selectbox(key="tune_cell_setting").set_value(1).run()
    page.button(key="tune_use").click().run()
    assert not page.exception
    recorded = bundled_runs.tuning().cells[0]
    assert page.session_state["set_max_new_tokens"] == recorded.config.max_new_tokens == 12
    assert page.session_state["prompt"] == default_sweep.prompts()[0].question.prompt


def test_two_cells_are_compared_as_one_tree(page: AppTest) -> None:
    assert page.button(key="tune_compare").disabled
    page.selectbox(key="tune_cell_other").set_value(3).run()
    page.button(key="tune_compare").click().run()
    assert not page.exception
    assert page.session_state["diff_a"] == page.session_state["diff_b"] == "cell"
    page.switch_page("../pages/compare.py").run()
    for _ in range(100):
        if "A: entropy threshold" in captions(page):
            break
        page.run()
    assert "A: entropy threshold" in captions(page)
    assert not page.exception


def test_the_recommender_predicts_and_the_check_lies_in_its_interval() -> None:
    page = opened("tune", view="threshold")
    page.slider(key="tune_max_new_tokens").set_value(6)
    page.selectbox(key="tune_set").set_value(OWN).run()
    page.text_area(key="tune_own").set_value("My favorite color is\nI have a pet")
    page.number_input(key="tune_wanted_number").set_value(6).run()
    run_to_its_end(page.button(key="tune_pilot_start").click().run(), PILOT_STOP).run()
    assert not page.exception
    [sentence] = [one for one in words(page) if one.startswith("Threshold ")]
    assert "for about 6 paths" in sentence
    assert "Predicted from 2 prompts and 6 seeds" in sentence
    assert any(one.startswith("Not measured yet") for one in words(page))
    run_to_its_end(page.button(key="tune_check").click().run(), PILOT_STOP).run()
    assert any("both inside the predicted interval" in one for one in words(page))
    page.button(key="tune_use_recommended").click().run()
    assert not page.exception
    assert f"Threshold {page.session_state['set_threshold_nats']:g} nats" in sentence


def test_a_model_that_cannot_be_loaded_is_explained(page: AppTest) -> None:
    page.segmented_control(key="set_model_kind").set_value("Other").run()
    page.text_input(key="set_model_other").set_value("./no_such_folder").run()
    run_to_its_end(page.button(key="tune_start").click().run(), STOP)
    assert "there is no such folder" in page.error[0].value
    assert "Recorded: embedded" in captions(page)


def test_the_recorded_evaluation_says_whether_trees_find_wrong_answers() -> None:
    page = opened("tune", view="worth")
    report = bundled_runs.evaluation()
    assert not page.exception
    assert evaluation_sentence(report) in words(page)
    table = page.table[0].value
    assert list(table.reset_index().columns) == list(ROW_HEADINGS)
    assert len(table) == len(report["rows"])
    assert f"{report['facts']} questions with known answers" in captions(page)
