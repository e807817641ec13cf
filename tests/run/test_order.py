"""The order of samples: by weight, but by birth where weights differ only by rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saying_model import flat_run

from eab.run import largest_first


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(-1e-9, 1e-9)), max_size=12),
    st.floats(1e-300, 1e300),
)
def test_the_last_bits_do_not_change_the_order(
    given: list[tuple[int, float]], scale: float
) -> None:
    exact = [scale * size for size, _ in given]
    rounded = [scale * size * (1 + error) for size, error in given]
    order = sorted(range(len(given)), key=lambda index: -given[index][0])  # stable
    assert largest_first(exact) == largest_first(rounded) == order


@pytest.mark.parametrize("error", [-1e-16, 1e-16])
def test_samples_of_equal_weight_are_in_order_of_birth(error: float) -> None:
    texts = [("b", 0.25, 0.25, True), ("a", 0.25 + error, 0.25, True), ("c", 0.5, 0.5, True)]
    assert [sample.text for sample in flat_run(texts).samples] == ["c", "b", "a"]
