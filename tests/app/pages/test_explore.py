"""The page without a browser: it runs, says what is wrong, and keeps what was on the screen."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from page_walk import board_message, open_example, open_file, opened, run_to_its_end, status
from places import MAIN, ROOT
from streamlit.testing.v1 import AppTest

from app.state import process
from eab import record
from eab.analysis.answers import group_answers
from eab.config import BranchingConfig
from eab.events import Message, RunStarted, TokenAppended
from eab.lessons import bundled_runs
from eab.run import fold


@pytest.fixture
def page() -> AppTest:
    return AppTest.from_file(MAIN, default_timeout=30).run()


def test_the_first_visit_shows_a_bundled_run(page: AppTest) -> None:
    assert not page.exception
    first = bundled_runs.recordings()[0]
    assert page.text_area(key="prompt").value == fold(bundled_runs.events_of(first)).started.prompt  # type: ignore[union-attr]
    assert first.title in status(page)
    assert board_message(page)["paths"]


def test_no_page_imports_torch_on_the_first_visit() -> None:
    names = sorted(file.stem for file in (Path(MAIN).parents[1] / "pages").glob("*.py"))
    code = f"""
import sys
from app.state import process
from page_walk import opened

process.WARM_UP_AFTER = 600.0
tab = opened()
for name in {names}:
    page = tab.switch_page(f"../pages/{{name}}.py").run()
    assert not page.exception, (name, page.exception)
    assert page.main.children, name
    assert not {{'torch', 'transformers'}} & set(sys.modules), name
"""
    paths = os.pathsep.join([str(ROOT / "tests" / "support"), *sys.path])
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        check=True,
        capture_output=True,
        timeout=120,
    )


def test_every_bundled_run_opens(page: AppTest) -> None:
    for recording in bundled_runs.recordings():
        open_example(page, recording)
        assert not page.exception, recording.file
        assert recording.title in status(page)


def test_run_generates_from_the_prompt(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("The cat sat on the")
    page.slider(key="set_max_new_tokens").set_value(5)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert not page.exception
    assert not page.error
    message = board_message(page)
    assert message["prompt"] == "The cat sat on the"
    assert (
        message["steps"][-1]["step"] == 4
    )  # of five; earlier ones may have been in an earlier message


def test_a_run_that_nobody_watched_says_so_to_whoever_comes_back(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.slider(key="set_max_new_tokens").set_value(256)
    monkeypatch.setattr("app.server.live_run.UNWATCHED_SECONDS", 0.0)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert not page.exception
    assert not page.error
    assert status(page).startswith("Stopped (its tab was closed) after ")
    assert not page.get("progress")


def test_an_empty_prompt_is_explained_and_the_picture_stays(page: AppTest) -> None:
    before = board_message(page)["paths"]
    page.text_area(key="prompt").set_value("   ")
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert "the prompt is empty" in page.error[0].value
    assert board_message(page)["paths"] == before


def test_an_unknown_model_is_explained(page: AppTest) -> None:
    page.segmented_control(key="set_model_kind").set_value("Other").run()
    page.text_input(key="set_model_other").set_value("./no_such_folder").run()
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert "there is no such folder" in page.error[0].value.replace("\\", "")
    assert not page.exception


def test_a_prompt_that_is_too_long_is_explained(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("word " * 2000)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert "Shorten the prompt" in page.error[0].value.replace("\\", "")


def test_changed_settings_are_announced_and_change_nothing_yet(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("The cat")
    page.slider(key="set_max_new_tokens").set_value(2)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    page.slider(key="set_temperature").set_value(0.8).run()
    assert "temperature" in status(page)
    assert "Press Run" in status(page)


def test_an_unknown_run_in_the_url_falls_back_to_a_bundled_run() -> None:
    page = AppTest.from_file(MAIN, default_timeout=30)
    page.query_params["run"] = "<script>alert(1)</script>"
    page.run()
    assert not page.exception
    assert board_message(page)["paths"]


def test_streamlit_run_finds_the_packages_from_any_folder(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", "import eab, app"], cwd=tmp_path, check=True)


EXTREMES = [
    {
        "max_new_tokens": 4096,
        "max_paths": 256,
        "branch_factor": 16,
        "top_k": 1_000_000,
        "r": 4096,
        "seed": 2**63 - 1,
    },
    {"entropy_threshold": 20.0, "temperature": 10.0, "min_fork_weight": 1.0},
    {
        "temperature": 0.01,
        "top_p": 0.01,
        "entropy_threshold": 0.0,
        "max_paths": 1,
        "r": 1,
        "max_new_tokens": 1,
    },
    {"threshold_unit": "quantile", "entropy_threshold": 1.0, "policy": "greedy"},
    {
        "threshold_unit": "normalised",
        "entropy_threshold": 1,
        "policy": "original",
        "chat": True,
        "system": "Be *brief*",
        "max_paths": 200,
    },
]


@pytest.mark.parametrize("settings", EXTREMES, ids=lambda settings: ",".join(settings))
def test_a_run_file_with_settings_beyond_the_sliders_opens_and_says_what_the_page_changes(
    page: AppTest, settings: dict[str, Any]
) -> None:
    events = list(bundled_runs.events_of(bundled_runs.recordings()[1]))
    assert isinstance(events[0], RunStarted)
    events[0] = replace(events[0], config=BranchingConfig(**settings))
    open_file(page, "far.eab", record.dumps(events))
    assert not page.exception
    assert not page.error
    assert status(page).startswith("Changed since this run: ")
    page.button(key="run_button").click().run()  # the nearest settings are valid ones
    assert not page.exception
    process.worker().remembered[-1].stop()


def test_the_same_recording_can_be_chosen_again_after_a_run(page: AppTest) -> None:
    second = bundled_runs.recordings()[1]
    open_example(page, second)
    page.slider(key="set_max_new_tokens").set_value(2)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    open_example(page, second)
    assert second.title in status(page)


def test_two_different_files_of_equal_length_are_two_runs(page: AppTest) -> None:
    one = list(bundled_runs.events_of(bundled_runs.recordings()[1]))
    other = [
        replace(event, text=" other") if isinstance(event, TokenAppended) else event
        for event in one
    ]
    keys = []
    for events in (one, other):
        open_file(page, "run.eab", record.dumps(events))
        keys.append(board_message(page)["run"])
    assert keys[0] != keys[1]


@pytest.mark.parametrize("tab", ["Answers", "Export"])
def test_result_tabs_open_for_a_bundled_run(page: AppTest, tab: str) -> None:
    page.session_state["results"] = tab
    page.run()
    assert not page.exception
    buttons = {button.proto.label for button in page.get("download_button")}
    assert (
        {"Answers (CSV)"}
        if tab == "Answers"
        else {"Run file", "Replay (HTML)", "Tree (GraphML)", "Steps (Parquet)"}
    ) <= buttons


def test_the_answers_follow_what_an_answer_is(page: AppTest) -> None:
    capital = next(one for one in bundled_runs.recordings() if one.file == "capital.eab")
    open_example(page, capital)
    page.session_state["results"] = "Answers"
    page.run()
    assert any("1 answer." in text.value for text in page.text)
    page.segmented_control(key="answer_part").set_value("Whole text").run()
    whole = len(group_answers(fold(bundled_runs.events_of(capital)), "text").ranked)
    assert whole > 1
    assert any(f"{whole} answers." in text.value for text in page.text)


def test_an_answer_is_what_a_pattern_finds(page: AppTest) -> None:
    capital = next(one for one in bundled_runs.recordings() if one.file == "capital.eab")
    open_example(page, capital)
    page.session_state["results"] = "Answers"
    page.run()
    page.segmented_control(key="answer_part").set_value("Pattern").run()
    assert any("(no answer)" in text.value for text in page.text), "the pattern that stands there"
    page.text_input(key="answer_pattern").set_value(r"(\w+)\.").run()
    assert any("1 answer." in text.value and "Paris" in text.value for text in page.text)
    page.text_input(key="answer_pattern").set_value("(").run()
    assert not page.exception
    assert any("not a regular expression" in error.value for error in page.error)


def test_the_answers_follow_the_rule_and_name_the_fork_that_decides(page: AppTest) -> None:
    wording = next(one for one in bundled_runs.recordings() if one.file == "wording.eab")
    open_example(page, wording)
    page.session_state["results"] = "Answers"
    page.run()
    assert any("nats) and decides the answer." in text.value for text in page.text)
    page.segmented_control(key="same_answer").set_value("content").run()
    assert not page.exception
    assert any("All texts give one answer" in text.value for text in page.text)


def test_reset_and_presets_set_the_settings_and_the_marks_follow(page: AppTest) -> None:
    open_example(page, bundled_runs.named("ball.eab"))
    paths = "Max paths ● default 10"
    assert page.slider(key="set_max_paths").label == paths
    assert page.button(key="reset_button").label.startswith("Reset ")
    page.button(key="reset_button").click().run()
    assert (page.slider(key="set_max_paths").value, page.button(key="reset_button").label) == (
        10,
        "Reset",
    )
    assert page.slider(key="set_max_paths").label == "Max paths"
    page.segmented_control(key="preset").set_value("Wide").run()
    assert page.slider(key="set_max_paths").value == 32
    assert page.slider(key="set_max_paths").label == paths
    assert not page.exception


def test_a_threshold_survives_a_look_at_another_unit(page: AppTest) -> None:
    page.slider(key="set_threshold_nats").set_value(1.25).run()
    page.selectbox(key="set_threshold_unit").set_value("quantile").run()
    page.slider(key="set_threshold_quantile").set_value(0.9).run()
    page.selectbox(key="set_threshold_unit").set_value("nats").run()
    assert page.slider(key="set_threshold_nats").value == 1.25
    page.selectbox(key="set_threshold_unit").set_value("quantile").run()
    assert page.slider(key="set_threshold_quantile").value == 0.9


def test_the_model_of_a_recorded_run_is_chosen_again(page: AppTest) -> None:
    events = list(bundled_runs.events_of(bundled_runs.recordings()[1]))
    assert isinstance(events[0], RunStarted)
    for name in ("./my-model", "gpt2", "ollama:llama3.2:1b"):
        events[0] = replace(events[0], model=replace(events[0].model, name=name))
        open_file(page, "other.eab", record.dumps(events))
        assert page.segmented_control(key="set_model_kind").value == "Other"
        assert page.text_input(key="set_model_other").value == name
        open_example(page, bundled_runs.recordings()[0])
        assert page.segmented_control(key="set_model_kind").value == "Stories"


def test_weights_in_fewer_bits_are_used_and_are_part_of_the_link(page: AppTest) -> None:
    page.selectbox(key="set_weights").set_value("int8")
    page.slider(key="set_max_new_tokens").set_value(4)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert not page.exception
    assert not page.error
    shown = process.worker().remembered[-1]
    assert shown.state.run.started.model.weights == "int8"
    assert shown.model_name == "embedded@int8"
    open_example(page, bundled_runs.recordings()[0])
    assert page.selectbox(key="set_weights").value == "as-loaded"


def test_what_was_typed_and_the_run_survive_a_look_at_another_page(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("The cat sat on the")
    page.slider(key="set_max_new_tokens").set_value(4)
    page.slider(key="set_temperature").set_value(0.5)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    run_id = page.query_params["run"]
    page.switch_page("../pages/memory.py").run()
    assert page.text_area(key="prompt").value == "The cat sat on the"
    page.text_area(key="prompt").set_value("The dog ran to the").run()
    del page.query_params["run"]  # as browsers do on a change of page
    page.switch_page("../pages/explore.py").run()
    assert not page.exception
    assert page.text_area(key="prompt").value == "The dog ran to the"
    assert (
        page.slider(key="set_temperature").value,
        page.slider(key="set_max_new_tokens").value,
    ) == (0.5, 4)
    assert board_message(page)["prompt"] == "The cat sat on the", "the run is still on the screen"
    assert page.query_params["run"] == run_id


CHAT = (Message("system", "Be brief."), Message("user", "A coin"))


def messages_of_the_last_run() -> tuple[Message, ...]:
    return process.worker().remembered[-1].request.messages


def test_a_run_of_a_chat_runs_again_with_its_messages_while_its_prompt_is_not_changed(
    page: AppTest,
) -> None:
    events = list(bundled_runs.events_of(bundled_runs.recordings()[1]))
    assert isinstance(events[0], RunStarted)
    config = replace(events[0].config, chat="auto")
    events[0] = replace(events[0], prompt="A coin", messages=CHAT, config=config)
    open_file(page, "chat.eab", record.dumps(events))
    assert page.text_area(key="prompt").value == "A coin"
    assert "Changed since" not in status(page)
    query = board_message(page)["offers"]["link"]["query"]
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert messages_of_the_last_run() == CHAT
    assert "has no chat template, which messages require" in status(page)

    linked = opened(**dict(parse_qsl(query)))
    linked.button(key="run_button").click().run()
    run_to_its_end(linked)
    assert messages_of_the_last_run() == CHAT

    linked.text_area(key="prompt").set_value("A dog")
    linked.slider(key="set_max_new_tokens").set_value(1)
    linked.button(key="run_button").click().run()
    run_to_its_end(linked)
    assert messages_of_the_last_run() == ()
    assert not linked.error


def test_the_page_sets_what_goes_into_a_chat_template(page: AppTest) -> None:
    page.segmented_control(key="set_chat").set_value("auto")  # the recording has it off
    page.text_area(key="set_system").set_value("Be brief.")
    page.text_input(key="set_chat_template_kwargs").set_value('{"a":1}').run()
    assert page.text_area(key="set_system").label == "System message ● default empty"
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    config = process.worker().remembered[-1].request.config
    assert (config.chat, config.system) == ("auto", "Be brief.")
    assert config.chat_template_kwargs == '{"a": 1}'
    assert "Changed since" not in status(page)
    page.text_input(key="set_chat_template_kwargs").set_value("{a").run()
    page.button(key="run_button").click().run()
    assert "which is not JSON with plain values" in page.error[0].value
