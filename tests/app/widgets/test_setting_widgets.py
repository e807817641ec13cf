"""The threshold slider follows the preset until somebody moves it; the histogram below it."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from app.widgets.setting_widgets import histogram, no_histogram

SLIDER = "set_threshold_nats"


def script() -> None:
    import streamlit as st

    from app.widgets import setting_widgets

    setting_widgets.ensure()
    setting_widgets.draw_threshold(setting_widgets.defaults(), None, st.session_state.get("probe"))


def probed() -> tuple[AppTest, float, float]:
    """The page with a probe, and the values of its slider before and after the probe."""
    page = AppTest.from_function(script).run()
    before = page.slider(key=SLIDER).value
    page.session_state["probe"] = [0.1 * step for step in range(30)]
    page.run()
    assert not page.exception
    shown = page.slider(key=SLIDER).value
    assert before != shown
    return page, before, shown


def test_a_late_message_with_the_previous_value_does_not_count_as_a_move() -> None:
    page, before, shown = probed()
    page.slider(key=SLIDER).set_value(before).run()
    assert page.session_state["set_threshold_unit"] == "rank"
    assert page.slider(key=SLIDER).value == shown
    page.slider(key=SLIDER).set_value(shown).run()
    assert page.session_state["set_threshold_unit"] == "rank"


def test_a_moved_slider_sets_the_threshold() -> None:
    page, _, shown = probed()
    page.slider(key=SLIDER).set_value(shown + 0.5).run()
    assert page.session_state["set_threshold_unit"] == "nats"
    assert page.slider(key=SLIDER).value == shown + 0.5


@pytest.mark.parametrize(("entropy", "shown"), [(1.5, 1.5), (4.0, 4.0), (4.91, 4.0)])
def test_a_rank_beyond_the_end_of_the_slider_is_explained(entropy: float, shown: float) -> None:
    page = AppTest.from_function(script).run()
    page.session_state["probe"] = [entropy] * 9
    page.run()
    assert not page.exception
    assert page.slider(key=SLIDER).value == shown
    beyond = ["The threshold is 4.91 nats, beyond the end of this slider."]
    assert [note.value for note in page.caption] == (beyond if entropy > shown else [])


def per_step(drawn: str) -> list[int]:
    found = re.search(r'data-per-step="([^"]*)"', drawn)
    return [int(count or 0) for count in found[1].split(",")]


def text(drawn: str) -> str:
    return re.sub(r"<[^>]+>", "", drawn)


def test_the_counts_per_slider_step_add_up_to_the_tokens_above_a_threshold() -> None:
    entropies = [0.0, 0.29, 0.3, 1.0, 1.0, 9.0]
    counts = per_step(histogram(entropies, "", 0.3))
    assert (len(counts), sum(counts), counts[100], counts[-1]) == (401, 6, 2, 1)
    for step, threshold in enumerate(index / 100 for index in range(401)):
        assert sum(counts[step:]) == sum(entropy >= threshold for entropy in entropies)


def test_the_sentence_says_what_forks_and_whose_tokens_they_are() -> None:
    drawn = histogram([0.1, 0.7, 1.2], " of a greedy run", 0.69)
    assert text(drawn) == ("Unsure (≥ 2.0 equally likely tokens): 2 of 3 tokens of a greedy run.")
    assert text(histogram([], "", 0.0)) == "Unsure (≥ 1.0 equally likely tokens)."
    assert text(no_histogram("Not known.")) == "Not known."


@pytest.mark.parametrize("entropies", [[0.0] * 5, [1.5] * 5, [0.0], [20.0]])
def test_equal_entropies_have_one_bar_of_full_height(entropies: list[float]) -> None:
    assert re.findall(r"height:([1-9]\d*%)", histogram(entropies, "", 0.3)) == ["100%"]
