"""The page Quantization without a browser."""

import pytest
from page_walk import opened, words
from streamlit.testing.v1 import AppTest

from app.state import weight_matrix
from eab.figures import weight_matrix as pictures
from eab.quantization.grid import ROW, Grid

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
    page.segmented_control(key="set_model_kind").set_value("Folder").run()
    assert "folder" in page.info[0].value
    page.text_input(key="set_model_folder").set_value("/no/such/model").run()
    assert not page.exception
    assert page.error
