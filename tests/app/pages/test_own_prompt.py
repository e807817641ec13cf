"""A typed prompt goes to the chat model if that is installed; examples keep their own models."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from page_walk import Tab, opened

from app.server import rules
from app.server.rules import PUBLIC
from app.state.session import model_download, worker
from app.widgets.controls import QUESTIONS
from eab.engine.models import packaged
from eab.engine.models.packaged import SMOLLM2

SKY, CAPITAL = "Why is the sky blue?", "What is the capital of Australia?"
SHORT = {"set_max_new_tokens": 8, "set_max_paths": 2}


@pytest.fixture
def page(smollm2_here: None) -> Tab:
    return opened(example="bridge.eab")


def kind(page: Tab) -> object:
    return page.value("set_model_kind")


def test_the_first_visit_opens_on_a_run_of_a_model_that_is_here(smollm2_here: None) -> None:
    page = opened()
    assert (page.board["run"], kind(page)) == ("recorded-cake.eab", "Chat")
    assert not page.button(key="run_button").disabled


def test_a_typed_prompt_goes_to_the_chat_model_with_settings_for_that_model(page: Tab) -> None:
    assert kind(page) == "Stories", "the model of the example"
    assert any("Story model" in caption.value for caption in page.sidebar.caption)
    page.put(prompt=CAPITAL)
    assert kind(page) == "Chat"
    settings = ("threshold_unit", "threshold_rank", "max_paths", "temperature")
    assert [page.value(f"set_{name}") for name in settings] == ["rank", 3.0, 12, 0.5]
    page.put(preset="Model's own")
    assert page.value("set_temperature") == pytest.approx(0.2)
    assert page.value("set_top_p") == pytest.approx(0.9)


def test_an_example_question_is_answered_by_the_chat_model_at_a_click(page: Tab) -> None:
    assert all(page.button(key=question) for question in QUESTIONS)
    page.press(QUESTIONS[0], **SHORT)
    assert (page.value("prompt"), kind(page)) == (QUESTIONS[0], "Chat")
    assert worker().remembered[-1].request.prompt == QUESTIONS[0]
    page.run_to_its_end()
    assert not any(button.key in QUESTIONS for button in page.main.button)


def test_after_an_empty_prompt_a_typed_prompt_still_goes_to_the_chat_model(page: Tab) -> None:
    page.put(prompt="").press("run_button").until(lambda: bool(page.errors))
    assert "prompt is empty" in page.errors[0]
    assert kind(page) == "Stories"
    assert kind(page.put(prompt=CAPITAL)) == "Chat"
    assert page.value("set_threshold_unit") == "rank"


def test_settings_changed_by_hand_stay_and_an_example_brings_back_its_own_model(page: Tab) -> None:
    page.put(set_max_paths=3).put(prompt=SKY)
    assert (page.value("set_max_paths"), kind(page)) == (3, "Chat")
    page.put(set_model_kind="Stories")
    assert page.value("prompt") == SKY
    assert (page.value("set_max_paths"), page.value("set_temperature")) == (3, 0.5)
    assert kind(page.put(prompt="The cat sat on")) == "Stories"
    assert kind(page.open_example("canberra")) == "Chat"
    assert kind(page.open_example("coin")) == "Stories"


def test_the_settings_of_a_link_stay_when_the_prompt_is_changed(smollm2_here: None) -> None:
    page = opened(prompt="The cat", model="embedded", max_paths="5", seed="3")
    assert (kind(page), page.value("set_max_paths")) == ("Stories", 5)
    page.put(prompt="The dog")
    assert (kind(page), page.value("set_max_paths")) == ("Stories", 5)


@pytest.fixture
def without_it() -> Iterator[Tab]:
    model_download.clear()
    yield opened()
    model_download.clear()


def test_without_the_chat_model_prompts_go_to_the_story_model_with_no_reply_button(
    without_it: Tab,
) -> None:
    without_it.put(prompt="Once upon a time")
    assert kind(without_it) == "Stories"
    without_it.generate(**SHORT)
    assert "reply_button" not in [button.key for button in without_it.button]


def fetched(page: Tab) -> Tab:
    """Press the button that downloads the model, and wait until the download has ended."""
    page.press("get_model").until(lambda: not model_download().active).run()
    return page


def test_a_missing_chat_model_can_be_downloaded(
    without_it: Tab, monkeypatch: pytest.MonkeyPatch, smollm2_file: Path
) -> None:
    def fetch(model, report, should_stop):  # type: ignore[no-untyped-def]
        report(0.5)
        model.file.parent.mkdir(parents=True)
        model.file.symlink_to(smollm2_file)
        return True

    page = without_it.put(set_model_kind="Chat")
    assert page.button(key="run_button").disabled
    label = f"Download {SMOLLM2.title} (93 MB, Apache-2.0)"
    assert page.button(key="get_model").label == label
    monkeypatch.setattr(packaged, "get", fetch)
    assert not fetched(page).button(key="run_button").disabled
    SMOLLM2.file.unlink()
    SMOLLM2.file.parent.rmdir()


def test_a_failed_download_is_explained(without_it: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    page = fetched(without_it.put(set_model_kind="Chat"))
    assert "cannot be downloaded" in page.sidebar.error[0].value
    assert page.button(key="get_model"), "it can be tried again"


def test_a_public_server_downloads_the_chat_model_only_if_its_rules_list_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for models in (PUBLIC.models, ("embedded",), ()):
        listed = replace(PUBLIC, models=models)
        monkeypatch.setattr(rules, "current", lambda listed=listed: listed)
        assert model_download().is_allowed == ("smollm2" in models)


@pytest.mark.slow
def test_a_reply_continues_the_chat_with_the_likeliest_text_until_it_is_left(page: Tab) -> None:
    page.put(prompt=CAPITAL).generate(**SHORT)
    assert not page.error
    assert "Canberra" in json.dumps(page.board)
    page.press("reply_button")
    assert page.value("prompt") == ""
    assert any("replies to" in caption.value for caption in page.caption)
    page.put(prompt="And of Austria?").generate(**SHORT)
    assert not page.error
    runs = [run for run in worker().remembered if run.job.kind == "run"]
    [live] = [run for run in runs if run.request.prompt == "And of Austria?"]
    messages = live.state.run.started.messages
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert messages[0].content == CAPITAL

    page.press("reply_button").press("new_chat_button")
    page.press("run_button", prompt="And of Chile?")
    live = worker().remembered[-1]
    live.stop()
    assert (live.request.prompt, live.request.messages) == ("And of Chile?", ())


def test_a_prompt_that_goes_to_another_model_than_the_selected_one_says_so(page: Tab) -> None:
    page.put(prompt=CAPITAL)
    words = "Own prompts go to another model: Chat model."
    assert words in page.status
    page.put(set_max_paths=3).put(set_model_kind="Stories")
    assert kind(page) == "Stories"
    assert words not in page.status
