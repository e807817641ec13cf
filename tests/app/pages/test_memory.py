"""The page Memory without a browser: it opens on a recorded comparison, makes one, stops, and says
what is wrong.
"""

import json
import time

import pytest
from page_walk import opened, run_to_its_end, start, words
from streamlit.testing.v1 import AppTest

from app.state.process import worker
from eab.analysis.kv_allocation import kv_allocation
from eab.figures.kv_allocation import allocation_sentence
from eab.formatting import times
from eab.labs.variants import cache_pictures as caches
from eab.labs.variants.costs import gain_sentence, step_words, variant_rows, variants_sentence
from eab.labs.variants.results import CACHES, REPEATS, cache_variants
from eab.lessons import bundled_runs
from eab.timing import TOO_FEW


@pytest.fixture
def page() -> AppTest:
    return opened("memory")


def test_the_first_visit_shows_the_recorded_sweep(page: AppTest) -> None:
    assert not page.exception
    recorded = bundled_runs.caches()
    assert words(page) == [
        f"{variants_sentence(recorded)} {gain_sentence(recorded)}",
        caches.totals_sentence(recorded),
        caches.held_sentence(recorded),
        caches.paths_sentence(recorded.runs[0]),
        caches.time_sentence(recorded),
        allocation_sentence(kv_allocation(recorded.runs[:1])),
    ]
    assert len(page.get("plotly_chart")) == 5
    assert list(page.table[0].value.columns) == list(CACHES)
    assert list(page.table[0].value.index) == [line.measure for line in variant_rows(recorded)]
    assert "Recorded: embedded" in " ".join(caption.value for caption in page.main.caption)


def test_the_size_of_a_block_changes_what_blocks_reserve(page: AppTest) -> None:
    tree = bundled_runs.caches().runs[:1]
    for size in (128, 8):
        page.segmented_control(key="block_size").set_value(size).run()
        assert not page.exception
        assert words(page)[-1] == allocation_sentence(kv_allocation(tree, size))
        assert list(page.table[1].value.columns)[1] == f"blocks of {size}"


def test_the_recorded_comparison_is_one_of_all_caches_that_agree() -> None:
    recorded = bundled_runs.caches()
    assert [run.started.config.cache for run in recorded.runs if run.started] == list(CACHES)
    assert recorded.agreed
    costs = {cost.variant: cost for cost in recorded.costs()}
    assert costs["tree"].copied_bytes < costs["deep-copy"].copied_bytes / 10
    assert costs["tree"].most_held_bytes < costs["deep-copy"].most_held_bytes
    assert sum(file.stat().st_size for file in bundled_runs.CACHES.iterdir()) < 500_000


def test_the_page_opens_with_what_the_tree_saves() -> None:
    recorded = bundled_runs.caches()
    costs = {cost.variant: cost for cost in recorded.costs()}
    ratio = costs["deep-copy"].copied_bytes / costs["tree"].copied_bytes
    assert f"deep-copy {times(ratio)} as much" in gain_sentence(recorded)
    assert gain_sentence(recorded).endswith(f"Time per step: {step_words(recorded.costs())}.")
    assert gain_sentence(cache_variants()) == ""


def test_run_compares_all_caches(page: AppTest) -> None:
    run_to_its_end(start(page, "The cat sat on the", 4))
    assert not page.exception
    assert not page.error
    assert words(page)[0].startswith("The same tokens with 4 caches. The tree copies ")
    assert "Measured here: embedded" in " ".join(caption.value for caption in page.main.caption)
    assert "The cat sat on the" in " ".join(caption.value for caption in page.main.caption)
    assert list(page.table[0].value.columns) == list(CACHES)
    assert "Changed since" not in " ".join(caption.value for caption in page.main.caption)
    page.slider(key="set_temperature").set_value(0.5).run()
    assert "Changed since this run: temperature" in " ".join(
        caption.value for caption in page.main.caption
    )


def test_while_it_runs_the_comparison_before_stays_and_stop_acts(page: AppTest) -> None:
    before = words(page)
    start(page, "Once upon a time", 256)
    assert words(page) == before
    assert not page.button(key="stop_button").disabled
    page.button(key="stop_button").click().run()
    run_to_its_end(page)
    assert not page.exception
    assert words(page) == before


def test_the_runs_are_shown_before_their_repeats_and_stop_keeps_both(page: AppTest) -> None:
    start(page, "Once upon a time", 16)
    live = worker().remembered[-1]
    while not live.state.repeats:
        assert live.active, live.message
        live.mark_watched()  # a run that no tab watches is stopped after a while
        time.sleep(0.02)
    page.run()
    assert words(page)[0].startswith("The same tokens with 4 caches. The tree copies ")
    assert TOO_FEW in words(page)[0]
    page.button(key="stop_button").click().run()
    run_to_its_end(page)
    assert live.state.ended.reason == "stopped"
    assert 1 <= live.state.repeats < REPEATS
    assert words(page)[0].endswith(f"Time per step: {step_words(live.state.costs())}.")


def test_an_empty_prompt_is_explained_and_the_charts_stay(page: AppTest) -> None:
    before = words(page)
    run_to_its_end(start(page, "   ", 4))
    assert "the prompt is empty" in page.error[0].value
    assert words(page) == before


def test_an_unknown_model_is_explained(page: AppTest) -> None:
    page.segmented_control(key="set_model_kind").set_value("Other").run()
    page.text_input(key="set_model_other").set_value("./no_such_folder").run()
    run_to_its_end(start(page, "The cat", 2))
    assert "there is no such folder" in page.error[0].value.replace("\\", "")
    assert not page.exception


def test_an_unknown_comparison_in_the_url_falls_back_to_the_recorded_one() -> None:
    page = opened("memory", cache_variants="<b>")
    assert not page.exception
    assert words(page)[0].startswith(variants_sentence(bundled_runs.caches()))


def test_the_print_view_keeps_all_charts(page: AppTest) -> None:
    page.toggle(key="print_view").set_value(True).run()
    assert not page.exception
    assert len(page.get("plotly_chart")) == 5
    charts = [json.loads(chart.proto.spec)["layout"] for chart in page.get("plotly_chart")]
    assert [chart["paper_bgcolor"] for chart in charts] == ["white"] * 5


def test_the_caches_can_be_chosen_on_the_first_page() -> None:
    page = opened()
    page.selectbox(key="set_cache").set_value("deep-copy")
    run_to_its_end(start(page, "The cat sat on the", 3))
    assert not page.exception
    assert not page.error
    assert page.selectbox(key="set_cache").value == "deep-copy"
