"""The cost model against brute force: exact counts, the best r, the fit; and r = auto."""

from operator import mul
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.config import AllocationStep
from eab.engine.caches.growth import (
    LEAST_STEPS,
    CacheWorkload,
    CostModel,
    best_r,
    best_rows,
    fit_cost_model,
    growth_step,
    in_whole_blocks,
)

SECONDS = st.floats(1e-8, 1e-3)
COSTS = st.builds(CostModel, SECONDS, st.floats(0, 1e-2), SECONDS, st.floats(0, 1e-4))


class GrowthCounts(NamedTuple):
    """Exact counts of a run."""

    growths: int
    rows_copied: int  # rows copied by them
    spare_visits: int  # spare rows, summed over the steps

    def seconds(self, costs: CostModel, tokens: int = 1) -> float:
        """The overhead of these counts, for forward passes of `tokens` tokens."""
        each = (costs.allocation, costs.copy_row, costs.spare_row_seconds(tokens))
        return sum(map(mul, self, each))


def overhead(costs: CostModel, work: CacheWorkload, rows_ahead: float) -> float:
    """The closed form whose minimum `best_rows` is: seconds of growths and spare rows if the
    tensors grow by `rows_ahead` rows at a time.
    """
    growths = work.rows / rows_ahead
    copied = growths * work.prompt + work.rows * (growths - 1) / 2
    spare = (work.rows / work.kept) * (rows_ahead - work.kept) / 2
    return (
        costs.copy_row * copied
        + costs.allocation * growths
        + costs.spare_row_seconds(work.tokens) * spare
    )


def count_growths(work: CacheWorkload, r: AllocationStep) -> GrowthCounts:
    """Exact counts of a run in which every step keeps `work.kept` rows (a whole number)."""
    kept = int(work.kept)
    used = held = work.prompt
    growths = copied = spare = 0
    for _ in range(work.rows // kept):
        if used + kept > held:
            more = growth_step(r, used, kept) * kept
            growths, copied, held = growths + 1, copied + used, held + more
        used += kept
        spare += held - used
    return GrowthCounts(growths, copied, spare)


@given(
    growths=st.integers(1, 40),
    r=st.integers(1, 40),
    prompt=st.integers(0, 300),
    kept=st.integers(1, 6),
    costs=COSTS,
)
def test_the_closed_form_is_exact_where_r_divides_the_length(growths, r, prompt, kept, costs):
    work = CacheWorkload(growths * r * kept, prompt, kept, tokens=kept)
    counted = count_growths(work, r)
    assert counted.growths == growths
    assert overhead(costs, work, r * kept) == pytest.approx(counted.seconds(costs, kept), rel=1e-9)


@settings(max_examples=25)
@given(
    rows=st.integers(64, 1500),
    prompt=st.integers(0, 600),
    ratio=st.floats(0.3, 5.0),
    allocation=st.floats(0, 200),
)
def test_the_best_r_is_as_good_as_the_best_one_found_by_trying_all(rows, prompt, ratio, allocation):
    costs = CostModel(copy_row=ratio, allocation=allocation, spare_row=1.0)
    work = CacheWorkload(rows, prompt)
    least = min(overhead(costs, work, r) for r in range(1, rows + 1))
    assert overhead(costs, work, best_r(costs, work)) <= least * 1.01
    steps = {*range(1, 65), *range(65, rows + 1, 7), rows, best_r(costs, work)}
    counted = {r: count_growths(work, r).seconds(costs) for r in steps}
    # With few growths, a last one that is hardly used counts for more.
    growths = work.rows / best_r(costs, work)
    assert counted[best_r(costs, work)] <= min(counted.values()) * (1 + 1.2 / growths)


@given(
    costs=COSTS,
    work=st.builds(CacheWorkload, st.integers(1, 4000), st.integers(0, 4000), st.integers(1, 40)),
)
def test_the_best_rows_lie_between_one_step_and_all(costs: CostModel, work: CacheWorkload) -> None:
    assert min(work.kept, work.rows) <= best_rows(costs, work) <= max(work.kept, work.rows)


def test_costs_measured_as_zero_lead_to_the_lowest_or_highest_r() -> None:
    free_to_visit, free_to_copy = CostModel(1e-6, 0.0, 0.0), CostModel(0.0, 0.0, 1e-6)
    assert best_r(free_to_visit, CacheWorkload(100)) == 100
    assert best_r(free_to_copy, CacheWorkload(100)) == 1
    assert [*map(in_whole_blocks, (1, 15, 16, 17, 32))] == [1, 15, 16, 32, 32]


@given(rows=st.integers(0, 5000), paths=st.integers(1, 256))
def test_with_auto_spare_rows_are_at_most_a_quarter_of_those_in_use_or_a_few_steps(rows, paths):
    r = growth_step("auto", rows, paths)
    assert r == LEAST_STEPS or LEAST_STEPS < r <= rows / 4 / paths


@pytest.mark.parametrize("rows", [64, 1024, 16384])
@pytest.mark.parametrize("paths", [1, 4, 64])
def test_with_auto_at_most_a_few_times_the_written_rows_are_copied(rows: int, paths: int) -> None:
    work = CacheWorkload(rows, prompt=10, kept=paths)
    auto, few_steps = (count_growths(work, r) for r in ("auto", LEAST_STEPS))
    assert auto.rows_copied <= 5 * (rows + 10)
    assert auto.growths <= few_steps.growths


@given(
    planted=st.builds(
        CostModel,
        st.floats(1e-7, 1e-4),
        st.floats(0, 1e-2),
        st.floats(1e-7, 1e-4),
        st.floats(0, 1e-5),
    )
)
def test_the_fit_recovers_known_constants_despite_an_outlier(planted: CostModel) -> None:
    grid = (100, 200, 300, 400, 500, 600, 700)
    copies = [(rows, planted.allocation + rows * planted.copy_row) for rows in grid]
    copies[4] = (500, 10 * copies[4][1])
    visits = {
        tokens: [(rows, 1e-3 + rows * planted.spare_row_seconds(tokens)) for rows in grid]
        for tokens in (1, 8)
    }
    found = fit_cost_model(copies, visits, max_tokens=8)
    assert found.copy_row == pytest.approx(planted.copy_row, rel=1e-6)
    assert found.allocation == pytest.approx(planted.allocation, rel=1e-6, abs=1e-9)
    assert found.spare_row == pytest.approx(planted.spare_row, rel=1e-6)
    assert found.spare_query == pytest.approx(planted.spare_query, rel=1e-6, abs=1e-11)
    falling = [(100, 3.0), (200, 2.0), (300, 1.0)]  # noise never gives negative constants
    found = fit_cost_model(falling, {1: falling, 8: falling}, max_tokens=8)
    assert min(found.copy_row, found.spare_row, found.spare_query) == 0.0
    assert found.allocation >= 0.0
