"""The page Quantization without a browser."""

import pytest
from page_walk import boards, opened, run_to_its_end, start, words
from streamlit.testing.v1 import AppTest

from app.state import weight_matrix
from eab.labs.quantization import held_out, machine_speed
from eab.labs.quantization import matrix_pictures as pictures
from eab.labs.quantization import measure as experiments
from eab.labs.quantization import pictures as weight_formats
from eab.labs.quantization import roofline_picture as roofline
from eab.labs.quantization.fork_diff import moved
from eab.labs.quantization.fork_diff_picture import moved_sentence
from eab.labs.quantization.rounding import ROW, Grid
from eab.lessons import bundled_runs
from eab.run import fold
from eab.weight_formats import AS_LOADED

LAYER = "model.layers.0.mlp.down_proj"


@pytest.fixture
def page() -> AppTest:
    return opened("quantization")


def test_the_page_rounds_a_real_matrix_of_the_embedded_model(page: AppTest) -> None:
    assert not page.exception
    assert not page.error
    page.selectbox(key="matrix").set_value(LAYER)
    page.segmented_control(key="grid_method").set_value("absmax")
    page.select_slider(key="grid_bits").set_value(3)
    page.select_slider(key="grid_share").set_value(ROW).run()
    assert not page.exception
    rounding = weight_matrix.rounding("embedded", LAYER, Grid("absmax", 3, ROW))
    assert rounding.weight.shape == (256, 688)
    assert pictures.takeaway_sentence(rounding, (256, 688)) in words(page)
    assert pictures.grid_sentence(rounding) in words(page)


def test_nf4_has_four_bits_and_offers_double_quantization(page: AppTest) -> None:
    page.segmented_control(key="grid_method").set_value("nf4").run()
    assert page.select_slider(key="grid_bits").disabled
    before = words(page)[0]
    page.toggle(key="grid_double").set_value(True).run()
    assert not page.exception
    assert words(page)[0] != before
    assert any(text.startswith("Double quantization rounds") for text in words(page))


def test_a_model_that_is_not_there_is_explained(page: AppTest) -> None:
    page.segmented_control(key="set_model_kind").set_value("Other").run()
    assert "folder" in page.info[0].value
    page.text_input(key="set_model_other").set_value("/no/such/model").run()
    assert not page.exception
    assert page.error


def test_the_first_visit_shows_the_recorded_formats_the_recorded_run_and_the_roofline(
    page: AppTest,
) -> None:
    recorded, b = bundled_runs.formats(), bundled_runs.quantized().run
    a = fold(bundled_runs.events_of(bundled_runs.recordings()[0]))
    assert b is not None
    assert weight_formats.formats_sentence(recorded) in words(page)
    assert weight_formats.steps_sentence(recorded) in words(page)
    assert moved_sentence(moved(a, b), "int4") in words(page)
    assert roofline.roofline_sentence(recorded) in words(page)
    assert list(page.table[0].value.columns) == list(weight_formats.HEADINGS[1:])
    assert len(boards(page)) == 1
    captions = " ".join(caption.value for caption in page.main.caption)
    assert "Recorded: embedded, float32" in captions
    assert "Run this model on Explore" in captions


def test_formats_are_measured_here(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    fables = held_out.texts()[:1]
    monkeypatch.setattr(held_out, "texts", lambda: fables)
    monkeypatch.setattr(experiments, "WEIGHT_FORMATS", (AS_LOADED, "int8"))
    monkeypatch.setattr(experiments, "ROWS", (1, 3))
    monkeypatch.setitem(machine_speed.SIZES, "cpu", machine_speed.Sizes(2**22, 256, 2))
    page.text_input(key="formats_prompt").set_value("The cat sat on the")
    page.button(key="formats_run").click().run()
    run_to_its_end(page, "formats_stop")
    assert not page.exception
    assert not page.error
    captions = " ".join(caption.value for caption in page.main.caption)
    assert "Measured here: embedded" in captions
    assert "The cat sat on the" in captions
    assert list(page.table[0].value.index) == [AS_LOADED, "int8"]


def test_an_empty_prompt_is_explained_and_the_recorded_formats_stay(page: AppTest) -> None:
    page.text_input(key="formats_prompt").set_value(" ")
    page.button(key="formats_run").click().run()
    run_to_its_end(page, "formats_stop")
    assert "the prompt is empty" in " ".join(error.value for error in page.error)
    assert weight_formats.formats_sentence(bundled_runs.formats()) in words(page)


def test_the_run_of_explore_is_made_again_in_fewer_bits_and_is_a_point() -> None:
    page = run_to_its_end(start(opened(), "The cat sat on the", 6))
    page.switch_page("../pages/quantization.py").run()
    assert (
        "This prompt has no run in fewer bits yet. Press Run in this format to make one."
        in words(page)
    )
    assert any("Your run:" in sentence for sentence in words(page))
    page.selectbox(key="quantized_weights").set_value("nf4")
    page.button(key="quantized_run").click().run()
    run_to_its_end(page, "quantized_stop")
    assert not page.exception
    assert not page.error
    assert any(sentence.startswith("With nf4, ") for sentence in words(page))
    assert "embedded@nf4" in " ".join(caption.value for caption in page.main.caption)
