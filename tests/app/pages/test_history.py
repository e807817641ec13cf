"""The runs of a tab: noted, opened again, pinned and compared."""

import pytest
from page_walk import board_message, boards, open_example, run_to_its_end, start
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.state import history
from eab.lessons import bundled_runs

COIN, ROAD = (
    next(one for one in bundled_runs.recordings() if one.file == file)
    for file in ("coin.eab", "count.eab")
)
FIRST = bundled_runs.events_of(bundled_runs.recordings()[0])[0].config  # type: ignore[union-attr]


@pytest.fixture
def page() -> AppTest:
    return AppTest.from_file(MAIN, default_timeout=60).run()


def keys(page: AppTest) -> list[str]:
    return [past.key for past in page.session_state["past_runs"]]


def test_each_run_of_a_tab_is_listed_once_the_newest_first(page: AppTest) -> None:
    assert "compare_pinned" not in [button.key for button in page.button], "there is one run"
    open_example(page, COIN)
    open_example(page, ROAD)
    open_example(page, COIN)
    first = bundled_runs.recordings()[0].file
    assert keys(page) == ["recorded-count.eab", "recorded-coin.eab", f"recorded-{first}"]
    assert page.button(key="open-recorded-coin.eab").disabled, "it is on the screen"
    captions = [caption.value for caption in page.main.caption]
    assert any(f"max new tokens {FIRST.max_new_tokens}" in caption for caption in captions)
    assert not any("temperature" in caption and "seed" in caption for caption in captions)


def test_a_recorded_and_a_live_run_are_opened_again_with_their_settings(page: AppTest) -> None:
    run_to_its_end(start(page, "The cat sat on the", 3))
    live = keys(page)[0]
    page.button(key=f"open-{keys(page)[1]}").click().run()
    assert not page.exception
    assert page.slider(key="set_max_new_tokens").value == FIRST.max_new_tokens
    page.button(key=f"open-{live}").click().run()
    assert not page.exception
    assert board_message(page)["prompt"] == "The cat sat on the"
    assert page.slider(key="set_max_new_tokens").value == 3
    assert page.text_area(key="prompt").value == "The cat sat on the"


def test_a_run_that_the_server_forgot_is_explained(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_to_its_end(start(page, "The cat sat on the", 3))
    live = keys(page)[0]
    open_example(page, COIN)
    monkeypatch.setattr("app.server.registry.RunRegistry.find", lambda *_: None)
    page.button(key=f"open-{live}").click().run()
    assert not page.exception
    assert "no longer on the server" in page.error[0].value
    assert board_message(page)["run"] == "recorded-coin.eab"


def test_two_pinned_runs_are_compared(page: AppTest) -> None:
    open_example(page, COIN)
    open_example(page, ROAD)
    assert page.button(key="compare_pinned").disabled
    for file in ("coin.eab", "count.eab"):
        page.button(key=f"pin-recorded-{file}").click().run()
    page.button(key="compare_pinned").click().run()
    assert not page.exception
    assert (page.selectbox(key="diff_a").value, page.selectbox(key="diff_b").value) == (
        "pinned",
        "pinned",
    )
    captions = " ".join(caption.value for caption in page.main.caption).replace("\\", "")
    assert f"A: {COIN.title}. B: {ROAD.title}." in captions


def test_of_three_pinned_runs_the_first_is_let_go(page: AppTest) -> None:
    open_example(page, COIN)
    open_example(page, ROAD)
    for key in reversed(keys(page)):
        page.button(key=f"pin-{key}").click().run()
    assert page.session_state["pinned_runs"] == ["recorded-coin.eab", "recorded-count.eab"]


def test_only_so_many_runs_are_kept_and_pinned_ones_stay(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_RUNS", 4)
    recordings = bundled_runs.recordings()
    open_example(page, recordings[1])
    oldest = keys(page)[-1]
    page.button(key=f"pin-{oldest}").click().run()
    for recording in recordings[2 : history.MAX_RUNS + 2]:
        open_example(page, recording)
    assert len(keys(page)) == history.MAX_RUNS
    assert oldest in keys(page)
    assert boards(page)
