"""Names of weight formats, and how they are told apart from model names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.assets import ASSETS
from eab.run import record
from eab.run.events import ModelCard, RunStarted
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS, full_name, split_name

NAMES = st.sampled_from(["embedded", "./a@b/c", "org/name", "a@main", "@", "x@int9"])


@given(NAMES, st.sampled_from([*WEIGHT_FORMATS]))
def test_a_full_name_is_split_into_model_and_weight_format(model: str, weights: str) -> None:
    assert split_name(full_name(model, weights)) == (model, weights)


@pytest.mark.parametrize("name", ["embedded", "a@b", "@int8", "", "org/name@v2"])
def test_other_names_stay_whole(name: str) -> None:
    assert split_name(name) == (name, AS_LOADED)


def test_a_run_file_from_before_weight_formats_has_its_weights_as_loaded() -> None:
    events = record.load(ASSETS / "runs" / "sum.eab")
    started = next(event for event in events if isinstance(event, RunStarted))
    assert (started.model.weights, started.model.layout) == (AS_LOADED, "plain")


def test_the_full_name_of_a_card_includes_its_weight_format() -> None:
    card = ModelCard("embedded", "llama", 8, 1, 1, 1, "float32", "cpu", 8, weights="int4")
    assert card.full_name == "embedded@int4"
