"""Saved runs in the popover "Open", without a browser: save, open, rename, delete, and
errors.
"""

from pathlib import Path

import pytest
from page_walk import Tab, opened

from app.server.store import RUNS, NamedStore, RunStore
from eab.run import fold, record


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("EAB_STORE", str(tmp_path / "runs.sqlite"))
    return NamedStore(tmp_path / "runs.sqlite", RUNS)


@pytest.fixture
def page(store: RunStore) -> Tab:
    return opened_popover()


def opened_popover() -> Tab:
    return opened().remember(open_run=True)


def save(page: Tab, name: str) -> Tab:
    return page.press("save_run", name_run=name)


def prompt_of(store: RunStore, run_id: str) -> str:
    return fold(store.load(run_id)[1]).started.prompt


def test_a_run_is_saved_and_opened_again(page: Tab, store: RunStore) -> None:
    save(page.open_example("coin").remember(open_run=True), "My run")
    [saved] = store.all()
    assert saved.name == "My run"
    page.open_example("bridge").remember(open_run=True).put(saved_run=saved.id)
    assert "My run" in page.status
    assert page.value("prompt") == prompt_of(store, saved.id)
    assert page.value("recording") is None


def test_the_status_says_that_a_saved_run_breaks_off(page: Tab, store: RunStore) -> None:
    events = record.load("assets/runs/coin.eab")
    page.put(upload=("cut.eab", record.dumps(events[:-1]), ""))
    save(page.remember(open_run=True), "cut")
    page.open_example("bridge").remember(open_run=True).put(saved_run=store.all()[0].id)
    assert "It breaks off after " in page.status


def test_an_unnamed_run_is_named_after_its_prompt_and_a_long_name_stays_in_its_field(
    page: Tab, store: RunStore
) -> None:
    save(page, "x" * 100)
    assert "has 100 characters; at most 80 are allowed" in page.errors[0]
    assert page.value("name_run") == "x" * 100
    assert store.all() == []
    save(page, "  ")
    [saved] = store.all()
    assert prompt_of(store, saved.id).startswith(saved.name[:10])


def test_rename_and_delete_after_a_second_press(page: Tab, store: RunStore) -> None:
    save(page, "one")
    [saved] = store.all()
    page.put(saved_run=saved.id)
    page.press("rename_run", **{f"rename_{saved.id}_run": "two"})
    assert [run.name for run in store.all()] == ["two"]
    assert "two" in page.status, "the title of the run on the page"
    page.press("delete_run")
    assert [run.name for run in store.all()] == ["two"]
    page.press("delete_for_good_run")
    assert store.all() == []


def test_a_run_deleted_by_another_user_is_explained(page: Tab, store: RunStore) -> None:
    save(page, "one")
    [saved] = store.all()
    page.put(saved_run=saved.id)
    page.press("delete_run")
    store.delete(saved.id)
    page.press("delete_for_good_run")
    assert "somebody deleted it" in page.errors[0]
    assert page.boards


def test_hostile_names_are_shown_as_plain_text(page: Tab, store: RunStore) -> None:
    save(page, "<b>$x$</b> :smile: [a](b)").put(saved_run=store.all()[0].id)
    [line] = page.get_by_key("status").caption  # type: ignore[attr-defined]
    assert "\\<b\\>\\$x\\$" in line.value


def test_a_damaged_store_is_explained_and_the_page_still_works(store: RunStore) -> None:
    store.path.write_bytes(b"no database at all" * 500)
    page = opened_popover()
    assert "is damaged" in page.errors[0]
    assert page.boards


def test_the_store_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAB_STORE", "off")
    page = opened_popover()
    assert "switched off" in page.captions
    assert not [box for box in page.selectbox if box.key == "saved_run"]
