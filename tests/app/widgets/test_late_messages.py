"""A browser that has not yet received what the page has set sends the previous values."""

from streamlit.testing.v1 import AppTest

from app.widgets import board

BEFORE, AFTER = (1, 1), (5, 6)


def script() -> None:
    import streamlit as st

    from app.widgets import board

    board.set_again()
    for key in "ab":
        st.slider(key, 0, 10, 1, key=key)
    new = {"a": 5, "b": 6}
    st.button("Set", key="set", on_click=board.set_widgets, args=(new,))


def sliders(page: AppTest) -> tuple[int, ...]:
    assert not page.exception
    return tuple(page.slider(key=key).value for key in "ab")


def after_the_button() -> AppTest:
    page = AppTest.from_function(script).run()
    assert sliders(page) == BEFORE
    page.button(key="set").click().run()
    assert sliders(page) == AFTER
    return page


def sent(page: AppTest, a: int, b: int) -> tuple[int, ...]:
    """The values of the sliders after the browser has sent these values."""
    page.slider(key="a").set_value(a)
    page.slider(key="b").set_value(b)
    return sliders(page.run())


def test_a_late_message_changes_nothing() -> None:
    page = after_the_button()
    assert sent(page, *BEFORE) == AFTER
    assert sent(page, *BEFORE) == AFTER


def test_a_slider_that_a_person_moves_keeps_its_value() -> None:
    page = after_the_button()
    assert sent(page, 1, 6) == (1, 6)
    assert sent(page, 2, 1) == (2, 1)


def test_a_late_message_after_two_changes_in_a_row_changes_nothing() -> None:
    page = after_the_button()
    page.slider(key="a").set_value(7)
    page.button(key="set").click().run()
    assert sliders(page) == AFTER
    assert sent(page, *BEFORE) == AFTER


def test_a_change_of_one_widget_alone_is_taken_as_a_choice(monkeypatch) -> None:
    monkeypatch.setattr(board, "_ONE_CALLBACK", 0.0)
    page = after_the_button()
    page.slider(key="a").set_value(7)
    page.button(key="set").click().run()
    assert sent(page, 7, 6) == (7, 6)


def test_the_previous_values_are_taken_as_a_choice_after_some_seconds(monkeypatch) -> None:
    page = after_the_button()
    monkeypatch.setattr(board, "_SECONDS", 0.0)
    assert sent(page, *BEFORE) == BEFORE
