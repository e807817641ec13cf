"""The saved runs in the sidebar, without a browser: save, open, rename, delete, undo, and what can
go wrong.
"""

import os
from pathlib import Path

import pytest
from page_walk import boards
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.server import bundled_runs
from app.server.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "runs.sqlite"))
    return Store(Path(os.environ["EAB_STORE"]))


@pytest.fixture
def page(store: Store) -> AppTest:
    return AppTest.from_file(MAIN, default_timeout=30).run()


def save(page: AppTest, name: str) -> AppTest:
    page.text_input(key="save_name").set_value(name)
    return page.button(key="save_button").click().run()


def captions(page: AppTest) -> str:
    return " ".join(caption.value for caption in page.caption).replace("\\", "")


def test_a_run_is_saved_and_opened_again(page: AppTest, store: Store) -> None:
    second = bundled_runs.recordings()[1]
    page.selectbox(key="recording").set_value(second).run()
    save(page, "My run")
    assert not page.exception
    [saved] = store.all()
    assert saved.name == "My run"
    page.selectbox(key="recording").set_value(bundled_runs.recordings()[0]).run()
    page.selectbox(key="saved_run").set_value(saved.id).run()
    assert not page.exception
    assert "My run" in page.main.caption[0].value
    assert page.text_area(key="prompt").value == saved.prompt
    assert page.selectbox(key="recording").value is None


def test_without_a_name_it_is_called_by_its_prompt(page: AppTest, store: Store) -> None:
    save(page, "  ")
    assert store.all()[0].prompt.startswith(store.all()[0].name[:10])


def test_rename_delete_and_undo(page: AppTest, store: Store) -> None:
    save(page, "one")
    saved = store.all()[0]
    page.selectbox(key="saved_run").set_value(saved.id).run()
    page.text_input(key=f"rename_{saved.id}").set_value("two")
    page.button(key="rename_button").click().run()
    assert [run.name for run in store.all()] == ["two"]
    page.button(key="delete_button").click().run()
    assert not page.exception
    assert store.all() == []
    assert "Deleted: two" in captions(page)
    page.button(key="undo_button").click().run()
    assert [run.name for run in store.all()] == ["two"]
    assert not page.exception


def test_a_run_that_another_user_deletes_is_no_problem(page: AppTest, store: Store) -> None:
    save(page, "one")
    saved = store.all()[0]
    page.selectbox(key="saved_run").set_value(saved.id).run()
    store.delete(saved.id)
    page.button(key="delete_button").click().run()
    assert not page.exception
    assert "somebody deleted it" in page.error[0].value
    assert boards(page)


def test_hostile_names_are_text(page: AppTest, store: Store) -> None:
    save(page, "<b>$x$</b> :smile: [a](b)")
    page.selectbox(key="saved_run").set_value(store.all()[0].id).run()
    assert not page.exception
    assert "\\<b\\>\\$x\\$" in page.main.caption[0].value


def test_a_damaged_store_is_explained_and_the_page_goes_on(store: Store) -> None:
    store.path.write_bytes(b"no database at all" * 500)
    page = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not page.exception
    assert "is damaged" in page.sidebar.error[0].value
    assert boards(page)


def test_where_nothing_can_be_saved_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "file" / "runs.sqlite"))
    page = AppTest.from_file(MAIN, default_timeout=30).run()
    save(page, "one")
    assert not page.exception
    assert "cannot be written" in page.error[0].value
    assert boards(page)


def test_the_store_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAB_STORE", "off")
    page = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not page.exception
    assert not [expander for expander in page.sidebar.expander if expander.label == "Saved runs"]
