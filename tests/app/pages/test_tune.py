"""The Tune page without a browser: the recorded sweep, the user's own sweeps, Stop, names, errors,
the recommender, and the links to Explore.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_walk import Tab, opened
from places import MAIN

from app.server.store import NamedStore, default_sweep_store
from app.state import slot
from app.state.session import worker
from app.widgets import sweep_editor
from app.widgets.sweep_editor import OWN
from eab.errors import ConfigError
from eab.labs.jobs import sweep_job
from eab.labs.tuning import prompt_sets, sweeping
from eab.labs.tuning.evaluation_report import EVALUATION, verdict
from eab.labs.tuning.frontier import best_setting, setting_points
from eab.labs.tuning.grid import COSTS, GAINS, Grid
from eab.labs.tuning.pictures import answer_sentence, sweep_measures
from eab.labs.tuning.prompt_sets import SETS, Question, TuningPrompt, bundled_prompts
from eab.labs.tuning.report import Plan, TuningReport, dumps
from eab.lessons import bundled_runs

STOP, PILOT_STOP = "tune_stop", "tune_pilot_stop"
NEED_ANSWERS = ("correct", "brier")  # gains that need prompts with known answers
TWO_PROMPTS = "My favorite color is\nI tossed a coin. It"
PLANNED = Plan(Grid(), (TuningPrompt("a", Question("A")),))


@pytest.fixture
def page() -> Tab:
    return opened("tune")


def small(page: Tab, own: str = "") -> Tab:
    """Choose a small sweep: two thresholds, two path limits, two policies and two seeds."""
    page.put(tune_threshold_count=2, tune_seeds=2, tune_max_new_tokens=6)
    policies = ["fair", "independent"]
    page.remember(tune_max_paths=[4, 8], tune_branch_factor=[3], tune_policy=policies)
    return page.put(tune_set=OWN).put(tune_own=own) if own else page


def swept(page: Tab) -> Tab:
    """Press Run and wait until the sweep has ended."""
    page.press("tune_start").run_to_its_end(STOP).run()
    assert not page.error
    return page


def shown_measures(page: Tab) -> dict[str, str]:
    """The metrics on the page."""
    return {one.label: one.value for one in page.metric}


POLICIES = "Recorded: policies on a chat model"


def listing(page: Tab) -> Tab:
    """Open the list of sweeps."""
    return page.remember(open_sweep=True)


def test_the_first_visit_shows_the_recorded_sweep(page: Tab) -> None:
    assert not page.error
    recorded = bundled_runs.tuning()
    cost, gain = COSTS["tokens"], GAINS["distribution_error"]
    points = setting_points(recorded.cells, cost, gain)
    assert page.words[0] == answer_sentence(points, gain)
    assert shown_measures(page).items() >= sweep_measures(points, recorded.cells).items()
    assert "Recorded: embedded, float32, on " in page.captions
    assert page.charts == 1
    assert len(page.table[0].value) == len(points)
    planned = r"Run: 600 cells; the model makes at least 240 runs; about \d+ s"
    assert re.search(planned, page.captions)


def test_the_recorded_sweep_has_the_settings_that_the_widgets_show() -> None:
    recorded = bundled_runs.tuning()
    assert recorded.complete
    configs = {cell.config for cell in recorded.cells}
    assert len(configs) == len(sweeping.recorded_grid().configs()) * sweeping.SEEDS
    prompts = {one.question.prompt for one in sweeping.recorded_prompts()}
    assert {cell.prompt for cell in recorded.cells} == prompts
    assert any(cell.made == "resimulated" for cell in recorded.cells)
    assert bundled_runs.TUNING.stat().st_size < 200_000


def test_the_recorded_policies_of_a_chat_model_can_be_opened(page: Tab) -> None:
    listing(page).put(tune_shown=POLICIES)
    report = bundled_runs.policies()
    assert report.complete
    assert bundled_runs.POLICIES.stat().st_size < 200_000
    points = setting_points(report.cells, COSTS["tokens"], GAINS["probability_seen"])
    assert len(points) == len(sweeping.policies_grid().configs())
    page.put(tune_gain="probability_seen")
    assert page.words[0] == answer_sentence(points, GAINS["probability_seen"])
    assert "Recorded: smollm2, float32, on " in page.captions
    page.put(tune_shown="Recorded sweep")
    assert page.value("tune_gain") == "probability_seen"
    assert "Recorded: embedded" in page.captions


def test_the_questions_to_a_chat_model_are_a_hundred_that_have_answers() -> None:
    questions = prompt_sets.chat_questions()
    assert len({one.prompt for one in questions}) == 100
    assert all(one.answers and one.prompt.endswith("? Answer in a few words.") for one in questions)


def test_every_bundled_set_is_on_offer_and_gives_as_many_prompts_as_asked() -> None:
    assert prompt_sets.SET_LABELS.keys() == SETS.keys()
    for name in SETS:
        assert len(prompt_sets.some_prompts(name, 3)) == 3
        assert len(prompt_sets.some_prompts(name, 1000)) == len(bundled_prompts(name))


def test_a_reload_restores_a_sweep_that_ran_here_and_a_cell_opens_on_explore(page: Tab) -> None:
    small(page, TWO_PROMPTS)
    assert "Run: 24 cells; the model makes at least 16 runs; about " in page.captions
    listing(swept(page))
    assert page.value("tune_shown") == "Sweep"
    assert shown_measures(page)["Seeds per setting"] == "2"
    assert "Measured here: embedded" in page.captions
    assert "; 3 other settings are not measurably worse." in page.said
    assert "from earlier runs here" in page.captions  # the next estimate uses the measured times
    reloaded = opened("tune", tuning=page.query_params["tuning"])
    assert "Measured here: embedded" in reloaded.captions
    assert page.table[0].value.equals(reloaded.table[0].value)

    shown = shown_measures(page)
    page.press("tune_open").run_to_its_end()
    assert page.session_state["prompt"] == "My favorite color is"
    assert page.session_state["set_min_fork_weight"] == 0.0
    tree = page.session_state["run_slot"][0].state.run
    assert (shown["Tokens"], shown["Paths"]) == (f"{tree.tokens_needed:,}", f"{len(tree.leaves())}")


@pytest.mark.slow
def test_every_policy_can_be_compared_with_independent_sampling(page: Tab) -> None:
    small(page).put(tune_prompts=1).remember(tune_policy=[*sweep_editor.POLICIES])
    settings = [*swept(page).table[0].value.reset_index()["Setting"]]
    for policy in ("fair", "original"):
        assert sum(f"policy {policy}" in one for one in settings) == 4, "thresholds, path limits"
    for policy in ("independent", "arithmetic", "stochastic-beam"):
        assert sum(f"policy {policy}" in one for one in settings) == 2, "path limits"


@pytest.mark.slow
def test_calibration_is_on_offer_where_the_right_answers_are_known(page: Tab) -> None:
    labels = {GAINS[name].label for name in NEED_ANSWERS}
    assert not labels & {*page.selectbox(key="tune_gain").options}, "chances have no right one"
    swept(small(page.put(tune_set="facts").put(tune_prompts=2)))
    assert labels <= {*page.selectbox(key="tune_gain").options}
    page.put(tune_gain="brier")
    assert any(text.startswith("Brier score of the answers") for text in page.words)


def some_cells() -> TuningReport:
    return part_of(bundled_runs.tuning(), 500)


def part_of(whole: TuningReport, cells: int) -> TuningReport:
    return TuningReport().collect([whole.began, *whole.cells[:cells]])


def test_a_downloaded_sweep_is_opened_and_anything_else_is_refused(page: Tab) -> None:
    listing(page).put(tune_upload=("mine.json.gz", dumps(some_cells()), ""))
    assert page.value("tune_shown") == "mine.json.gz"
    assert "500 of 2,160 cells" in page.captions
    page.put(tune_upload=("bad.gz", b"no sweep", ""))
    assert "bad.gz cannot be read" in page.errors[0]
    assert page.value("tune_shown") == "mine.json.gz"
    page.put(tune_upload=("mine.json.gz", dumps(part_of(bundled_runs.tuning(), 400)), ""))
    names = ["Recorded sweep", POLICIES, "mine.json.gz", "mine.json.gz (2)"]
    assert page.radio(key="tune_shown").options == names
    page.put(tune_shown="Recorded sweep")
    assert "Recorded: embedded" in page.captions
    page.put(tune_shown="mine.json.gz")
    assert "500 of 2,160 cells" in page.captions


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedStore[TuningReport]:
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "runs.sqlite"))
    found = default_sweep_store()
    assert found is not None
    return found


@pytest.mark.slow
def test_a_sweep_is_saved_renamed_and_opened_in_another_tab_unless_it_is_gone(
    store: NamedStore[TuningReport],
) -> None:
    page = listing(opened("tune")).press("save_sweep", name_sweep="kept coins")
    [saved] = store.all()
    assert saved.name == "kept coins"
    assert store.load(saved.id)[1].cells == bundled_runs.tuning().cells
    other = listing(opened("tune")).put(saved_sweep=saved.id)
    linked = listing(opened("tune", sweep=saved.id))
    for tab in (other, linked):
        assert tab.value("tune_shown") == "kept coins"
        assert saved.id in tab.query_params["sweep"]
        assert shown_measures(tab)["Cells"] == "2,160"
    other.press("rename_sweep", **{f"rename_{saved.id}_sweep": "two"})
    assert store.all()[0].name == "two"
    other.press("delete_sweep").press("delete_for_good_sweep")
    assert store.all() == []
    assert shown_measures(other)["Cells"] == "2,160", "what the tab shows stays"
    linked.put(tune_shown="Recorded sweep")
    assert "sweep" not in linked.query_params
    page.put(saved_sweep=saved.id)
    assert "This sweep is not saved on this server" in page.errors[0]
    assert page.value("tune_shown") == "Recorded sweep"


def test_stop_keeps_the_cells_so_far_and_resume_ignores_the_controls(page: Tab) -> None:
    small(page).put(tune_prompts=3, tune_seeds=12).press("tune_start")
    stopped = worker().remembered[-1]
    page.until(lambda: bool(stopped.state.cells))
    page.press(STOP).run_to_its_end(STOP).run()
    assert "Stopped after" in page.captions
    assert "Measured here: embedded" in page.captions
    cells = [*stopped.state.cells]
    assert 0 < len(cells) < 216
    assert f"Sweep: {len(cells)} of 216 cells" in page.captions
    assert len(listing(page).radio(key="tune_shown").options) == len(slot.RECORDED) + 1
    page.put(tune_seeds=2).press("tune_resume").run_to_its_end(STOP).run()
    whole = worker().remembered[-1].state
    assert whole.complete
    assert all(one in whole.cells[: len(cells)] for one in cells)
    assert (len(whole.cells), whole.plan) == (216, stopped.state.plan)
    assert listing(page).radio(key="tune_shown").options == ["Recorded sweep", POLICIES, "Sweep"]
    assert "tune_resume" not in {one.key for one in page.button}


@pytest.mark.slow
def test_a_downloaded_part_of_a_sweep_resumes_with_its_own_settings(page: Tab) -> None:
    small(page, TWO_PROMPTS).put(tune_label="the")
    swept(page)
    whole = worker().remembered[-1].state
    assert all(cell.label is not None for cell in whole.cells)
    part = part_of(whole, 9)
    other = listing(opened("tune")).put(tune_upload=("part.json.gz", dumps(part), ""))
    assert "part.json.gz: 9 of 24 cells" in other.captions
    other.press("tune_use_plan")
    assert (other.value("tune_own"), other.value("tune_label")) == (TWO_PROMPTS, "the")
    assert (other.value("tune_seeds"), other.value("tune_max_new_tokens")) == (2, 6)
    other.press("tune_resume").run_to_its_end(STOP).run()
    assert sorted(one.key for one in worker().remembered[-1].state.cells) == sorted(
        one.key for one in whole.cells
    )


@pytest.mark.parametrize(
    "change",
    [
        {"grid": Grid({"kv_limit_mib": (100_000,)}, seeds=(1,))},
        {"prompts": (TuningPrompt("a", Question("A"), token_ids=(1,) * 9000),)},
        {"prompts": tuple(TuningPrompt(f"{n}", Question("A")) for n in range(25))},
        {"prompts": (TuningPrompt("a", Question("A" * 2001)),)},
        {"grid": Grid(seeds=range(1000)), "prompts": PLANNED.prompts * 5},
    ],
    ids=["kv", "ids", "prompts", "prompt", "cells"],
)
def test_the_plan_of_a_file_cannot_exceed_the_limits_of_the_page(change: dict[str, Any]) -> None:
    sweep_editor.check_plan(PLANNED)
    with pytest.raises(ConfigError):
        sweep_editor.check_plan(replace(PLANNED, **change))


def test_the_settings_of_the_recorded_sweep_can_be_loaded(page: Tab) -> None:
    assert page.value("tune_seeds") < sweeping.SEEDS
    listing(page).press("tune_use_plan")
    assert "Run: 2,160 cells" in page.captions
    assert page.value("tune_set") == sweeping.RECORDED_SET
    chosen = {name: tuple(page.session_state[f"tune_{name}"]) for name in sweeping.VARIED}
    assert chosen == sweeping.VARIED


def test_prompts_that_cannot_be_swept_are_explained(page: Tab) -> None:
    page.put(tune_set=OWN).put(tune_own="\n".join(map(str, range(30)))).press("tune_start")
    assert "30 prompts; write 1 to 24" in page.errors[0].lower()
    assert "Recorded: embedded" in page.captions
    assert "No value is chosen for max paths" in page.remember(tune_max_paths=[]).captions


def test_the_settings_of_a_cell_go_into_the_controls_of_explore(page: Tab) -> None:
    never_on_explore = Tab(MAIN, default_timeout=120).go_to("tune").press("tune_open")
    page.put(tune_cell_setting=1).press("tune_use")
    recorded = bundled_runs.tuning().cells[0]
    assert page.session_state["set_max_new_tokens"] == recorded.config.max_new_tokens == 12
    for tab in (never_on_explore, page):
        assert tab.session_state["prompt"] == sweeping.recorded_prompts()[0].question.prompt


def test_the_settings_of_the_answer_go_into_the_controls_of_explore(page: Tab) -> None:
    page.press("tune_use_best")
    found = setting_points(
        bundled_runs.tuning().cells, COSTS["tokens"], GAINS["distribution_error"]
    )
    best = best_setting(found, GAINS["distribution_error"]).config
    shown = {name: page.session_state[f"set_{name}"] for name in ("branch_factor", "max_paths")}
    assert shown == {"branch_factor": best.branch_factor, "max_paths": best.max_paths}


@pytest.mark.slow
def test_the_recommender_predicts() -> None:
    page = opened("tune", view="threshold").put(tune_max_new_tokens=6, tune_pilot_set=OWN)
    page.put(tune_own="My favorite color is\nI have a pet", tune_wanted_number=6)
    page.press("tune_pilot_start").run_to_its_end(PILOT_STOP).run()
    shown = page.table[0].value["Recommended"]
    assert [*shown.index] == ["Threshold", "Paths per run", "Tokens per run"]
    assert abs(float(shown["Paths per run"]) - 6) < 2
    page.press("tune_use_recommended")
    assert f"{page.session_state['set_threshold_nats']:g} nats" == shown["Threshold"]


def test_the_recorded_evaluation_says_whether_trees_find_wrong_answers() -> None:
    page, report = opened("tune", view="worth"), bundled_runs.evaluation()
    assert verdict(report) in page.words
    table = page.table[0].value
    headings, *rows = EVALUATION.table(report)
    assert list(table.reset_index().columns) == list(headings)
    assert len(table) == len(rows)
    assert report.about["questions"] > 400


def test_a_prompt_of_token_ids_is_checked_by_its_ids() -> None:
    prompt = TuningPrompt("a", Question("A"), token_ids=(1,) * 9000)
    [request] = sweep_job("sweep", Grid(), [prompt], "embedded").requests
    assert (request.prompt, request.token_ids) == ("", prompt.token_ids)
