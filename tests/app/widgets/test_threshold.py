"""The threshold slider follows the preset until somebody moves it."""

import pytest
from streamlit.testing.v1 import AppTest

SLIDER = "set_threshold_nats"


def script() -> None:
    import streamlit as st

    from app.widgets import setting_widgets, threshold

    setting_widgets.ensure()
    threshold.draw(setting_widgets.defaults(), None, st.session_state.get("probe"))


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
