"""The page Compare without a browser: two recordings, a file, independent samples, and Stop."""

import pytest
from page_walk import board_message, boards, opened, run_to_its_end, words
from streamlit.testing.v1 import AppTest

from app.server import bundled_runs
from eab import record
from eab.analysis.diff import independent_config
from eab.figures.diff import takeaway_sentence
from eab.run import Run, fold

RECORDINGS = {one.file: one for one in bundled_runs.recordings()}


@pytest.fixture
def page() -> AppTest:
    return opened("compare")


def bundled(file: str) -> Run:
    return fold(bundled_runs.events_of(RECORDINGS[file]))


def sample(page: AppTest) -> AppTest:
    page.button(key="diff_run").click().run()
    return run_to_its_end(page, "diff_stop")


def test_the_first_visit_shows_two_recordings_of_one_prompt(page: AppTest) -> None:
    assert not page.exception
    assert words(page) == [takeaway_sentence(bundled("ball.eab"), bundled("original.eab"))]
    assert set(board_message(page)["sides"]) == {"both", "a", "b"}
    assert page.table[0].value.columns.tolist() == ["A", "B", "B − A"]


def test_the_engine_makes_independent_samples_at_the_same_budget(page: AppTest) -> None:
    page.selectbox(key="diff_a").set_value(RECORDINGS["market.eab"])
    page.selectbox(key="diff_b").set_value("independent").run()
    assert "Choose two runs" in page.info[0].value
    count = independent_config(bundled("market.eab"), "tokens").max_paths
    assert page.button(key="diff_run").label == f"Sample {count} texts"
    sample(page)
    assert not page.exception
    assert not page.error
    table = page.table[0].value
    assert table.loc["texts", "B"] == str(count)
    assert table.loc["forks", "B"] == "0"
    assert set(board_message(page)["sides"]) <= {"both", "a", "b"}
    page.segmented_control(key="diff_budget").set_value("Number of texts").run()
    assert (
        page.button(key="diff_run").label == f"Sample {len(bundled('market.eab').leaves())} texts"
    )


def test_other_prompts_have_costs_and_no_common_tree(page: AppTest) -> None:
    page.selectbox(key="diff_b").set_value(RECORDINGS["coin.eab"]).run()
    assert not page.exception
    assert not boards(page)
    assert "different prompts" in words(page)[0]
    assert len(page.table) == 1


def test_a_file_takes_a_side_and_a_bad_one_is_explained_and_changes_nothing(page: AppTest) -> None:
    page.selectbox(key="diff_b").set_value("file").run()
    assert "Choose two runs" in page.info[0].value
    data = record.dumps(bundled_runs.events_of(RECORDINGS["long.eab"]))
    page.file_uploader(key="diff_upload_b").set_value(("mine.eab", data, "")).run()
    assert not page.exception
    before = words(page)
    assert before == [takeaway_sentence(bundled("ball.eab"), bundled("long.eab"))]
    page.file_uploader(key="diff_upload_b").set_value(("bad.eab", b"no run", "")).run()
    assert "bad" in page.error[0].value
    assert words(page) == before


def test_a_reload_finds_both_sides_and_the_samples_again(page: AppTest) -> None:
    page.selectbox(key="diff_a").set_value(RECORDINGS["market.eab"])
    page.selectbox(key="diff_b").set_value("independent").run()
    sample(page)
    reloaded = opened(
        "compare", **{name: str(page.query_params[name]) for name in ("a", "b", "samples")}
    )
    assert not reloaded.exception
    assert reloaded.selectbox(key="diff_a").value == RECORDINGS["market.eab"]
    assert reloaded.selectbox(key="diff_b").value == "independent"
    assert words(reloaded) == words(page)
    assert reloaded.table[0].value.equals(page.table[0].value)


def test_a_url_with_unknown_names_is_ignored() -> None:
    page = opened("compare", a="independent", b="../x", samples="gone")
    assert not page.exception
    assert page.selectbox(key="diff_a").value == RECORDINGS["ball.eab"]
    assert page.selectbox(key="diff_b").value == RECORDINGS["original.eab"]
