"""The page Compare without a browser: two recordings, a file, independent samples, and Stop."""

import pytest
from page_walk import board_message, boards, opened, run_to_its_end, words
from streamlit.testing.v1 import AppTest

from eab import record
from eab.analysis.diff import independent_config
from eab.figures.diff import measures_of, takeaway_sentence
from eab.lessons import bundled_runs
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


@pytest.fixture
def two_recordings(page: AppTest) -> AppTest:
    page.selectbox(key="diff_a").set_value(RECORDINGS["ball.eab"])
    return page.selectbox(key="diff_b").set_value(RECORDINGS["original.eab"]).run()


def test_the_first_visit_shows_a_tree_beside_independent_samples_at_its_budget(
    page: AppTest,
) -> None:
    assert not page.exception
    samples = bundled_runs.samples().run
    assert samples is not None
    assert words(page) == [takeaway_sentence(bundled("coins.eab"), samples)]
    assert set(board_message(page)["sides"]) <= {"both", "a", "b"}
    assert page.table[0].value.columns.tolist() == ["A", "B", "B − A"]
    assert page.table[0].value.index.name == "Measure"
    assert "On average over all seeds" in " ".join(one.value for one in page.main.caption)


def test_the_recorded_samples_have_the_settings_that_the_page_would_sample_with() -> None:
    samples, tree = bundled_runs.samples().run, bundled("coins.eab")
    assert samples is not None
    assert samples.started.config == independent_config(tree, "tokens")
    assert samples.started.prompt_tokens == tree.started.prompt_tokens
    assert measures_of(tree).explored > 0.99
    assert measures_of(samples).explored < 0.6


def test_two_recordings_of_one_prompt_are_one_tree(two_recordings: AppTest) -> None:
    assert not two_recordings.exception
    assert words(two_recordings) == [
        takeaway_sentence(bundled("ball.eab"), bundled("original.eab"))
    ]
    assert "less than 0.01%" in words(two_recordings)[0]
    assert set(board_message(two_recordings)["sides"]) == {"both", "a", "b"}


def test_the_engine_makes_independent_samples_at_the_same_budget(page: AppTest) -> None:
    page.selectbox(key="diff_a").set_value(RECORDINGS["market.eab"])
    page.selectbox(key="diff_b").set_value("independent").run()
    assert "Press Sample" in page.info[0].value
    count = independent_config(bundled("market.eab"), "tokens").max_paths
    assert page.button(key="diff_run").label == f"Sample {count} texts"
    sample(page)
    assert not page.exception
    assert not page.error
    table = page.table[0].value
    assert table.loc["texts", "B"] == str(count)
    assert "recorded" not in page.main.caption[1].value
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


def test_samples_of_another_prompt_are_not_shown(page: AppTest) -> None:
    page.selectbox(key="diff_a").set_value(RECORDINGS["coin.eab"]).run()
    assert "Press Sample" in page.info[0].value
    assert not boards(page)


def test_a_file_takes_a_side_and_a_bad_one_is_explained_and_changes_nothing(
    two_recordings: AppTest,
) -> None:
    page = two_recordings
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
    assert page.selectbox(key="diff_a").value == RECORDINGS["coins.eab"]
    assert page.selectbox(key="diff_b").value == "independent"
