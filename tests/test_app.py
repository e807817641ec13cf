"""The page without a browser: it runs, says what is wrong, and keeps what was on the screen."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import gallery
from eab.run import fold

MAIN = str(Path(__file__).resolve().parent.parent / "app" / "main.py")


@pytest.fixture
def page() -> AppTest:
    return AppTest.from_file(MAIN, default_timeout=30).run()


def board(page: AppTest) -> str:
    return str(page.get("bidi_component")[0].proto.json)


def run_to_its_end(page: AppTest) -> AppTest:
    deadline = time.monotonic() + 60
    while not page.button(key="stop_button").disabled:
        assert time.monotonic() < deadline, "the run does not end"
        time.sleep(0.2)
        page.run()
    return page


def test_the_first_visit_shows_a_bundled_run(page: AppTest) -> None:
    assert not page.exception
    first = gallery.recordings()[0]
    assert page.text_area(key="prompt").value == fold(gallery.events_of(first)).started.prompt  # type: ignore[union-attr]
    assert first.title in page.main.caption[0].value.replace("\\", "")
    assert board(page)


def test_the_first_visit_imports_no_torch() -> None:
    code = (
        "import sys; from streamlit.testing.v1 import AppTest; "
        f"page = AppTest.from_file({MAIN!r}, default_timeout=60).run(); "
        "assert not page.exception, page.exception; assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("recording", gallery.recordings(), ids=lambda recording: recording.file)
def test_every_bundled_run_opens(page: AppTest, recording: gallery.Recording) -> None:
    page.selectbox(key="recording").set_value(recording).run()
    assert not page.exception
    assert recording.title in page.main.caption[0].value.replace("\\", "")


def test_run_generates_from_the_prompt(page: AppTest) -> None:
    page.text_area(key="prompt").set_value("The cat sat on the")
    page.slider(key="set_max_new_tokens").set_value(5)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert not page.exception
    assert not page.error
    told = json.loads(board(page))
    assert told["prompt"] == "The cat sat on the"
    assert len(told["steps"]) == 5


def test_an_empty_prompt_is_explained_and_the_picture_stays(page: AppTest) -> None:
    before = json.loads(board(page))["paths"]
    page.text_area(key="prompt").set_value("   ")
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert "the prompt is empty" in page.error[0].value
    assert json.loads(board(page))["paths"] == before


def test_an_unknown_model_is_explained(page: AppTest) -> None:
    page.segmented_control(key="set_model_kind").set_value("Folder").run()
    page.text_input(key="set_model_folder").set_value("./no_such_folder").run()
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
    page.slider(key="set_temperature").set_value(0.5).run()
    assert "temperature" in page.main.caption[0].value
    assert "Press Run" in page.main.caption[0].value


def test_an_unknown_run_in_the_url_falls_back_to_a_bundled_run() -> None:
    page = AppTest.from_file(MAIN, default_timeout=30)
    page.query_params["run"] = "<script>alert(1)</script>"
    page.run()
    assert not page.exception
    assert board(page)


def test_streamlit_run_finds_the_packages_from_any_folder(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", "import eab, app"], cwd=tmp_path, check=True)
