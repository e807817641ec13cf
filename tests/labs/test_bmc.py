"""The rows of a run at each r: a curve and a table."""

from made_runs import bundled_run

from eab.analysis.kv_allocation import Demand, StepRows, best_r_of, demand_of
from eab.caches.growth import CostModel
from eab.labs import bmc as results
from eab.labs.bmc import allocations_table
from eab.labs.charts import chart_figure


def test_the_curve_of_a_run_counts_rows_and_names_the_preferred_r():
    needs = tuple(StepRows(step, 10 + step, 1) for step in range(9))
    demand = Demand(needs, steps_allowed=9, paths_allowed=1, row_bytes=8)
    copied, spare = chart_figure(results.run_curve(demand, (1, 4), None)).data
    # r = 1 copies 10, 11, ... 17 rows; r = 4 copies 10 and 14, and has 3, 2, 1, 0 spare rows twice.
    assert list(copied.y) == [sum(range(10, 18)), 24]
    assert list(zip(spare.x, spare.y, strict=True)) == [(4, 12)]
    free = CostModel(copy_row=1.0, allocation=0.0, spare_row=1e-9)
    dear = CostModel(copy_row=1e-9, allocation=0.0, spare_row=1.0)
    assert [best_r_of(demand, (1, 4), costs) for costs in (free, dear)] == [4, 1]
    assert "prefers r = 4. With" in results.run_curve_sentence(4)
    assert results.run_curve_sentence(None).startswith("With sliced")
    assert [*results.steps_measures(demand.at(4)).values()] == ["2", "24", "1.3"]


def test_the_table_of_allocations_counts_the_steps_at_each_r() -> None:
    demand = demand_of(bundled_run("bridge"))
    table = allocations_table(demand, (1, 8, 64))
    for row in table.to_dict("records"):
        steps = demand.at(int(row["r"]))
        assert row["rows_copied"] == sum(step.copied for step in steps)
        assert row["most_bytes_held"] == max(step.held for step in steps) * demand.row_bytes
    assert [*table["rows_copied"]] == sorted(table["rows_copied"], reverse=True)
