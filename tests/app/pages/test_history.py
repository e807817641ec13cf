"""The history of a tab: runs are listed, reopened, pinned and compared."""

import pytest
from made_runs import bundled_run
from page_walk import Tab, opened

from app.state import compare
from eab.lessons import bundled_runs

MOST = bundled_run("bridge").started.config.max_new_tokens  # of the run that a first visit shows


@pytest.fixture
def page() -> Tab:
    return opened()


def keys(page: Tab) -> list[str]:
    return [past.key for past in page.session_state["past_runs"]]


def test_each_run_of_a_tab_is_listed_once_and_the_newest_comes_first(page: Tab) -> None:
    assert "compare_pinned" not in [button.key for button in page.button], "there is one run"
    page.open_example("coin").open_example("count").open_example("coin")
    assert keys(page) == ["recorded-count.eab", "recorded-coin.eab", "recorded-bridge.eab"]
    assert page.button(key="open-recorded-coin.eab").disabled, "it is on the screen"
    captions = [caption.value for caption in page.main.caption]
    assert any(f"max new tokens {MOST}" in caption for caption in captions)
    assert not any("temperature" in caption and "seed" in caption for caption in captions)


def test_recorded_and_live_runs_can_be_reopened_until_the_server_drops_them(
    page: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.generate(prompt="The cat sat on the", set_max_new_tokens=3)
    live, first = keys(page)
    page.press(f"open-{first}")
    assert page.value("set_max_new_tokens") == MOST
    page.press(f"open-{live}")
    assert page.board["prompt"] == page.value("prompt") == "The cat sat on the"
    assert page.value("set_max_new_tokens") == 3
    page.open_example("coin")
    monkeypatch.setattr("app.server.worker.Remembered.find", lambda *_: None)
    page.press(f"open-{live}")
    assert "no longer on the server" in page.errors[0]
    assert page.board["run"] == "recorded-coin.eab"


def test_two_pinned_runs_are_compared_and_a_third_takes_the_place_of_the_first(page: Tab) -> None:
    page.open_example("coin").open_example("count")
    assert page.button(key="compare_pinned").disabled
    for key in reversed(keys(page)):
        page.press(f"pin-{key}")
    assert page.session_state["pinned_runs"] == ["recorded-coin.eab", "recorded-count.eab"]
    page.press("compare_pinned")
    assert page.value("diff_a") == page.value("diff_b") == "pinned"
    a, b = (bundled_runs.named(f"{name}.eab").title for name in ("coin", "count"))
    assert f"A: {a} · B: {b} · " in page.captions


def test_the_number_of_kept_runs_is_limited_and_pinned_runs_stay(
    page: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "MAX_RUNS", 4)
    oldest = keys(page.open_example("coin"))[-1]
    page.press(f"pin-{oldest}")
    for name in ("bent", "coins", "job", "bag"):
        page.open_example(name)
    assert len(keys(page)) == compare.MAX_RUNS
    assert oldest in keys(page)
    assert page.boards
