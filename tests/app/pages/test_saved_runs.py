"""The saved runs in the popover "Open", without a browser: save, open, rename, delete, undo, and what can
go wrong.
"""

import os
from pathlib import Path

import pytest
from page_walk import boards, container, open_example, status
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.server.named_store import NamedStore
from app.server.store import RUNS, RunStore
from eab.lessons import bundled_runs
from eab.run import fold


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "runs.sqlite"))
    return NamedStore(Path(os.environ["EAB_STORE"]), RUNS)


@pytest.fixture
def page(store: RunStore) -> AppTest:
    return opened_popover()


def opened_popover() -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=30)
    page.session_state["open_run"] = True
    return page.run()


def save(page: AppTest, name: str) -> AppTest:
    page.text_input(key="name_run").set_value(name)
    return page.button(key="save_run").click().run()


def captions(page: AppTest) -> str:
    return " ".join(caption.value for caption in page.caption).replace("\\", "")


def prompt_of(store: RunStore, run_id: str) -> str:
    return fold(store.load(run_id)[1]).started.prompt


def test_a_run_is_saved_and_opened_again(page: AppTest, store: RunStore) -> None:
    second = bundled_runs.recordings()[1]
    open_example(page, second)
    page.session_state["open_run"] = True
    page.run()
    save(page, "My run")
    assert not page.exception
    [saved] = store.all()
    assert saved.name == "My run"
    open_example(page, bundled_runs.recordings()[0])
    page.session_state["open_run"] = True
    page.run()
    page.selectbox(key="saved_run").set_value(saved.id).run()
    assert not page.exception
    assert "My run" in status(page)
    assert page.text_area(key="prompt").value == prompt_of(store, saved.id)
    assert page.radio(key="recording").value is None


def test_without_a_name_it_is_called_by_its_prompt(page: AppTest, store: RunStore) -> None:
    save(page, "  ")
    [saved] = store.all()
    assert prompt_of(store, saved.id).startswith(saved.name[:10])


def test_a_name_that_is_too_long_is_explained_and_kept_in_its_field(
    page: AppTest, store: RunStore
) -> None:
    save(page, "x" * 100)
    message = "The name has 100 characters; at most 80 are allowed. Shorten it."
    assert page.error[0].value.replace("\\", "") == message
    assert page.text_input(key="name_run").value == "x" * 100
    assert store.all() == []
    assert not page.exception


def test_rename_delete_and_undo(page: AppTest, store: RunStore) -> None:
    save(page, "one")
    saved = store.all()[0]
    page.selectbox(key="saved_run").set_value(saved.id).run()
    page.text_input(key=f"rename_{saved.id}_run").set_value("two")
    page.button(key="rename_run").click().run()
    assert [run.name for run in store.all()] == ["two"]
    assert "two" in container(page, "status").caption[0].value, "the title of the run on the page"
    page.button(key="delete_run").click().run()
    assert not page.exception
    assert store.all() == []
    assert "Deleted: two" in captions(page)
    page.button(key="undo_run").click().run()
    assert [run.name for run in store.all()] == ["two"]
    assert not page.exception


def test_a_run_that_another_user_deletes_is_no_problem(page: AppTest, store: RunStore) -> None:
    save(page, "one")
    saved = store.all()[0]
    page.selectbox(key="saved_run").set_value(saved.id).run()
    store.delete(saved.id)
    page.button(key="delete_run").click().run()
    assert not page.exception
    assert "somebody deleted it" in page.error[0].value
    assert boards(page)


def test_hostile_names_are_text(page: AppTest, store: RunStore) -> None:
    save(page, "<b>$x$</b> :smile: [a](b)")
    page.selectbox(key="saved_run").set_value(store.all()[0].id).run()
    assert not page.exception
    assert "\\<b\\>\\$x\\$" in container(page, "status").caption[0].value


def test_a_damaged_store_is_explained_and_the_page_goes_on(store: RunStore) -> None:
    store.path.write_bytes(b"no database at all" * 500)
    page = opened_popover()
    assert not page.exception
    assert "is damaged" in page.error[0].value
    assert boards(page)


def test_where_nothing_can_be_saved_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "file" / "runs.sqlite"))
    page = opened_popover()
    save(page, "one")
    assert not page.exception
    assert "cannot be written" in page.error[0].value
    assert boards(page)


def test_the_store_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAB_STORE", "off")
    page = opened_popover()
    assert not page.exception
    assert "switched off" in captions(page)
    assert not [box for box in page.selectbox if box.key == "saved_run"]
