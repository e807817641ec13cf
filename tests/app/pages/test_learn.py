"""The Learn page without a browser: stages, guesses, exercises, the user's runs, and uploads."""

import pytest
from lesson_sources import SMALL
from page_walk import Tab, opened

from app.state import learning
from app.state.what_if import WhatIfSettings
from eab.errors import LessonError


@pytest.fixture
def page() -> Tab:
    return opened("learn")


def on_stage(page: Tab, stage: int) -> Tab:
    for _ in range(stage):
        page.press("lesson_next")
    return page


def guess(page: Tab, choice: int) -> Tab:
    page.main.radio[0].set_value(choice).run()
    return page.press("lesson_reveal")


def test_the_first_visit_opens_a_moving_picture_beside_a_map_and_then_hides_the_board(
    page: Tab,
) -> None:
    assert page.value("lesson_list") == "tokens"
    assert page.button(key="lesson_back").disabled
    assert page.board["autoplay"]
    assert page.board["run"] == "lesson-opening"
    assert page.main.radio[0].options[0] == "1\\. What the model says, 5 min"
    assert on_stage(page, 1).boards == []
    assert page.button(key="lesson_reveal").disabled


def test_a_guess_is_answered_and_the_board_moves_to_the_token(page: Tab) -> None:
    guess(on_stage(page, 1), 0)
    assert "You guessed less than 0\\.30 nats" in page.info[0].value
    assert page.board["guide"]["token"] == [1, 0]
    assert page.board["guide"]["hides"] == ["forks", "rows", "answers"]
    assert page.board["run"] == "lesson-coin.eab"
    before = page.board["guide"]["id"]
    on_stage(page, 1)
    assert page.board["guide"]["cursor"] == 0
    assert page.board["guide"]["id"] != before
    page.press("lesson_back")
    assert "You guessed" in page.info[0].value
    assert "Right" in guess(on_stage(opened("learn"), 1), 1).success[0].value


def test_a_step_may_set_the_threshold_and_the_next_step_restores_it() -> None:
    page = opened("learn", lesson="forks", stage=4)
    assert page.board["asked"]["threshold"] == 2.4
    assert "asked" not in on_stage(page, 1).board


def test_an_exercise_checks_what_the_user_did_with_the_board_or_sliders() -> None:
    page = opened("learn", lesson="tokens", stage=5)
    assert not page.success
    page.remember(lesson_what_if=WhatIfSettings("lesson-coin.eab", 0.9, 4))
    assert [one.value for one in page.success] == ["Solved."]
    assert page.selectbox(key="lesson_list").format_func("tokens") == "1. What the model says ✓"
    page = opened("learn", lesson="kv-cache", stage=5)
    assert not page.success
    page.put(**{"knob-KV bytes-KV heads": 8})
    assert [one.value for one in page.success] == ["Solved."]


def test_the_last_stage_leads_to_the_next_lesson_and_the_last_lesson_ends() -> None:
    page = opened("learn", lesson="tokens", stage=6)
    on_stage(page, 1)
    assert page.value("lesson_list") == "forks"
    page = opened("learn", lesson="answers", stage=6)
    assert not [button for button in page.button if button.key == "lesson_next"]


def test_a_bad_link_is_explained_and_the_page_starts_as_usual() -> None:
    page = opened("learn", lesson="nobody")
    assert page.value("lesson_list") == "tokens"
    assert "There is no lesson 'nobody' on this server" in page.errors[0]


def test_a_lesson_can_be_uploaded_and_opened_by_its_link(page: Tab) -> None:
    page.put(lesson_upload=("small.md", SMALL.encode(), ""))
    assert not page.error
    own = page.value("lesson_list")
    assert own.startswith("own-")
    assert page.query_params["lesson"] == own
    other = opened("learn", lesson=own, stage=1)
    assert [header.value for header in other.header] == ["One"]


def test_a_bad_lesson_file_is_explained_and_the_lesson_stays(page: Tab) -> None:
    page.put(lesson_upload=("bad.md", SMALL.replace("coin.eab", "../x").encode(), ""))
    assert "no bundled run" in page.errors[0].lower()
    assert page.value("lesson_list") == "tokens"


def test_the_number_of_kept_uploads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MAX_UPLOADED", 2)
    first, *_ = [
        learning.add_uploaded(SMALL.replace("Small", f"Small {number}").encode())
        for number in range(3)
    ]
    with pytest.raises(LessonError, match="on this server"):
        learning.lesson_with_id(first.id)


def test_the_run_of_this_tab_can_feed_the_lesson() -> None:
    page = opened().generate(prompt="Once upon a time", set_max_new_tokens=8).go_to("learn")
    guess(on_stage(page.put(lesson_own=True), 1), 0)
    assert page.board["run"].startswith("lesson-live-")
    assert page.board["prompt"] == "Once upon a time"
