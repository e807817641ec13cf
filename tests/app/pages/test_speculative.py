"""The page Speculative decoding without a browser: recorded draft lengths, a new comparison, Stop,
errors.
"""

import pytest
from page_walk import opened, run_to_its_end, start, words
from streamlit.testing.v1 import AppTest

from eab.labs.variants import draft_pictures as speculation
from eab.labs.variants import draft_speed_pictures as speculation_speed
from eab.labs.variants.costs import variants_sentence
from eab.labs.variants.results import DRAFT_LENGTHS
from eab.lessons import bundled_runs


@pytest.fixture
def page() -> AppTest:
    return opened("speculative")


def test_the_first_visit_shows_the_recorded_draft_lengths(page: AppTest) -> None:
    assert not page.exception
    assert not page.error
    recorded = bundled_runs.draft_lengths()
    assert words(page)[0] == variants_sentence(recorded)
    assert speculation_speed.speed_sentence(recorded) in words(page)
    assert speculation.tokens_sentence(recorded) in words(page)
    assert speculation_speed.surface_sentence(recorded) in words(page)
    assert len(page.get("plotly_chart")) == 3
    assert list(page.table[0].value.columns) == list(recorded.variants)
    assert page.table[0].value.index.name == "Measure"
    assert "None" not in page.table[0].value.to_string()
    assert "Recorded: embedded" in " ".join(caption.value for caption in page.main.caption)


def test_the_recorded_draft_lengths_agree_and_their_draft_tokens_save_passes() -> None:
    recorded = bundled_runs.draft_lengths()
    assert recorded.agreed
    found = {one.name: one.stats for one in speculation.draft_length_results(recorded)}
    passes = [
        found["plain"].forward_passes,
        *(found[name].forward_passes for name in list(found)[1 : 1 + len(DRAFT_LENGTHS)]),
    ]
    assert passes == sorted(passes, reverse=True)
    assert passes[-1] < passes[0] / 2
    assert sum(file.stat().st_size for file in bundled_runs.DRAFT_LENGTHS.iterdir()) < 300_000


@pytest.mark.parametrize(
    ("drafter", "paths"),
    [
        ("model", "One text"),
        ("sibling-lookup", "Whole tree"),
        pytest.param("model", "Whole tree", marks=pytest.mark.slow),
        pytest.param("sibling-lookup", "One text", marks=pytest.mark.slow),
    ],
)
def test_run_tries_all_draft_lengths(page: AppTest, drafter: str, paths: str) -> None:
    page.selectbox(key="drafter_varied").set_value(drafter)
    page.segmented_control(key="decode_varied").set_value(paths)
    run_to_its_end(start(page, "Anna has a red ball. Ben has a red ball. Anna has", 8))
    assert not page.exception
    assert not page.error
    assert words(page)[0].startswith("The same tokens with 6 draft lengths.")
    assert any("medians of 7 repeats" in text for text in words(page))
    assert f"Drafter: {drafter}." in " ".join(caption.value for caption in page.main.caption)
    assert len(page.table[0].value.columns) == 6
    forked = paths == "Whole tree"
    assert (speculation_speed.ONE_PATH_ONLY in words(page)) == forked
    formula = not forked and drafter == "model"  # the other one drafts nothing in so short a text
    assert ("steps per pass (formula)" in page.table[0].value.index) == formula


def test_stop_acts_and_what_was_there_stays(page: AppTest) -> None:
    before = words(page)
    start(page, "Once upon a time", 256)
    assert words(page) == before
    page.button(key="stop_button").click().run()
    run_to_its_end(page)
    assert not page.exception
    assert words(page) == before


def test_an_empty_prompt_is_explained_and_the_charts_stay(page: AppTest) -> None:
    before = words(page)
    run_to_its_end(start(page, "   ", 4))
    assert "the prompt is empty" in page.error[0].value
    assert words(page) == before


def test_a_run_on_the_first_page_can_use_draft_tokens() -> None:
    page = opened()
    page.selectbox(key="set_drafter").set_value("model")
    page.slider(key="set_draft_length").set_value(3)
    run_to_its_end(start(page, "The cat sat on the", 6))
    assert not page.exception
    assert not page.error
    assert page.selectbox(key="set_drafter").value == "model"
