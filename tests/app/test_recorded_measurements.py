"""The recorded measurements that the measuring pages open with are complete, small, and show what
their page is about.
"""

import json

import pandas as pd
import pytest
from made_runs import bundled_run

from app.widgets.batching import requests
from eab.analysis.kv_allocation import demand_of
from eab.errors import ConfigError
from eab.formatting import times
from eab.labs.batching import (
    CLASS,
    MAX_REPEATS,
    PRESETS,
    WAYS,
    ServingRequest,
    agreement_sentence,
    schedules,
    shown,
    workload_of,
)
from eab.labs.bmc import (
    EXPERIMENTS,
    LABS,
    Experiment,
    allocations_table,
    overheads,
    predicted_r,
)
from eab.labs.caches import BYTES, CACHES_LAB
from eab.labs.charts import chart_figure
from eab.labs.drafts import DRAFTS, draft_length_results, paying_sentence
from eab.labs.measurement import Report, rows_table
from eab.labs.variants import CACHES, DRAFT_LENGTHS, agree, costs_of
from eab.lessons import bundled_runs


def test_the_recorded_batches_show_what_batching_is_about() -> None:
    found = bundled_runs.batching()
    assert found.complete
    workload = workload_of(found)
    assert workload.requests == PRESETS[CLASS]
    assert workload.repeats == MAX_REPEATS == len(schedules(found)["continuous"])
    assert agreement_sentence(found).startswith("All ways wrote the same")
    passes = [len(shown(found)[way].passes) for way in WAYS]
    assert passes == sorted(passes)
    assert passes[0] < 0.6 * passes[1]
    assert shown(found)["continuous"].awaited_idle_share == 0
    assert shown(found)["static batches"].awaited_idle_share > 0.5


@pytest.mark.parametrize("row", [(None, 8), ("a", None)])
def test_an_incomplete_row_of_requests_is_explained(row: tuple[object, object]) -> None:
    table = pd.DataFrame([("a", 8), row], columns=["prompt", "new_tokens"])
    with pytest.raises(ConfigError, match="request 2 is incomplete; give a prompt"):
        requests(table)
    assert requests(table[:1]) == (ServingRequest("a", 8),)


def test_the_recorded_caches_agree_and_the_tree_saves_most() -> None:
    found = bundled_runs.caches()
    assert [run.started.config.cache for run in found.runs.values()] == [*CACHES, "tree"]
    assert agree(found)
    costs = {cost.variant: cost for cost in costs_of(found)}
    ratio = costs["deep-copy"].copied_bytes / costs["tree"].copied_bytes
    assert ratio > 10
    assert costs["tree"].most_held_bytes < costs["deep-copy"].most_held_bytes
    assert times(ratio) in BYTES.answer(found)
    assert "(medians of 9 repeats, measured)" in CACHES_LAB.answer(found)


def test_the_recorded_draft_lengths_agree_and_their_draft_tokens_save_passes() -> None:
    found = bundled_runs.draft_lengths()
    assert agree(found)
    passes = [one.stats.forward_passes for one in draft_length_results(found)]
    passes = passes[: 1 + len(DRAFT_LENGTHS)]
    assert passes == sorted(passes, reverse=True)
    assert passes[-1] < passes[0] / 2


def test_prompt_lookup_pays_for_an_edit_and_not_for_an_open_story() -> None:
    edit, story = bundled_runs.prompt_lookup("edit"), bundled_runs.prompt_lookup("story")
    per_pass = []
    for found, pays in ((edit, True), (story, False)):
        assert agree(found)
        per_pass.append(max(one.steps_per_pass for one in draft_length_results(found)))
        assert ("times as fast here" in DRAFTS.answer(found)) is pays
    assert per_pass[0] > 2 > 1.2 > per_pass[1]
    words = paying_sentence(edit, story)
    assert all(f"{rate:.1f}" in words for rate in per_pass)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_recorded_reports_of_bmc_are_complete(name: Experiment) -> None:
    report, lab = bundled_runs.bmc(name), LABS[name]
    assert report.complete
    assert report.began.lab == name
    assert len(rows_table(report, name, lab.units)) == len(report.rows(name)) > 0
    assert len(lab.table(report)) > 3
    assert lab.answer(Report()) == "Nothing measured yet."
    json.loads(chart_figure(lab.chart(Report())).to_json())


def test_the_recorded_u_curve_has_the_ends_that_the_model_predicts() -> None:
    report = bundled_runs.bmc("growth")
    found, best = overheads(report), predicted_r(report)
    assert best is not None
    assert found[1].median > 3 * found[best].median
    assert found[max(found)].median > 3 * found[best].median


def test_the_table_of_allocations_counts_the_steps_at_each_r() -> None:
    demand = demand_of(bundled_run("bridge"))
    table = allocations_table(demand, (1, 8, 64))
    for row in table.to_dict("records"):
        steps = demand.at(int(row["r"]))
        assert row["rows_copied"] == sum(step.copied for step in steps)
        assert row["most_bytes_held"] == max(step.held for step in steps) * demand.row_bytes
    assert [*table["rows_copied"]] == sorted(table["rows_copied"], reverse=True)
