"""KV allocation in a chart, in words and in tables shows exactly the numbers of the fold."""

import pytest
from made_runs import bundled, run_of

from eab.config import BranchingConfig
from eab.engine.what_if.resimulate import resimulate
from eab.figures.kv_allocation import (
    allocation_figure,
    allocation_sentence,
    allocation_steps_table,
    allocation_table,
)
from eab.figures.kv_schemes import SCHEMES, KvAllocation, kv_allocation
from eab.formatting import human_bytes
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.timing import NOTHING_YET


def small(threshold: float) -> RunState:
    config = BranchingConfig(threshold, max_paths=6, max_new_tokens=20, r=4, seed=1)
    return run_of(TableModel(random_table(1, 5)), "0 1 2", config)


@pytest.fixture(scope="module")
def found() -> KvAllocation:
    return kv_allocation([bundled_runs.caches().runs["tree"], small(0.5)])


def test_the_chart_stacks_the_bytes_of_each_scheme_on_one_scale(found: KvAllocation) -> None:
    figure = allocation_figure(found)
    assert len({axis.range for axis in figure.select_yaxes()}) == 1
    notes = ["slabs (computed)", "blocks of 16 (computed)", "tree, r = 16 and 4 (measured)"]
    assert [note.text for note in figure.layout.annotations] == notes
    for scheme in SCHEMES:
        areas = [trace for trace in figure.data if trace.stackgroup == scheme]
        assert [area.name for area in areas] == ["tokens", "the same tokens again", "empty"]
        steps = found.steps[scheme]
        for number, reserved in enumerate(steps):
            drawn = sum(area.y[number] for area in areas)
            assert drawn == pytest.approx(reserved.total / 2**20)
        assert {len(area.x) for area in areas} == {len(steps) + 1}, "the last step has a width"
    assert sum(bool(trace.showlegend) for trace in figure.data) == 3


def test_the_sentence_starts_with_the_scheme_that_reserves_least(found: KvAllocation) -> None:
    words = allocation_sentence(found)
    peaks = {scheme: human_bytes(found.peak(scheme)) for scheme in SCHEMES}
    assert words.startswith(f"Reserved at the peak: tree, r = 16 and 4 {peaks['tree']}; ")
    assert f"; blocks of 16 {peaks['blocks']} (" in words
    assert f"; slabs {peaks['slab']} (" in words


def test_the_sentence_says_so_if_large_blocks_reserve_more_than_slabs() -> None:
    short = kv_allocation([small(0.5)], block_size=128)
    assert short.peak("blocks") > short.peak("slab")
    words = allocation_sentence(short)
    assert words.index("slabs") < words.index("blocks of 128")


def test_the_parts_in_the_table_add_up(found: KvAllocation) -> None:
    table = allocation_table(found)
    assert list(table.columns) == ["slabs", "blocks of 16", "tree, r = 16 and 4"]
    assert list(table.loc["reserved at the peak"]) == [
        human_bytes(found.peak(scheme)) for scheme in SCHEMES
    ]
    for column in table.columns:
        parts = [int(cell.rstrip("%")) for cell in table[column].iloc[1:4]]
        assert sum(parts) == pytest.approx(100, abs=1), "rounded"
    assert table.loc["the same tokens again, over all steps"].iloc[2] == "0%"


def test_the_download_has_every_step_of_every_scheme(found: KvAllocation) -> None:
    table = allocation_steps_table(found)
    assert len(table) == sum(map(len, found.steps.values()))
    parts = table[["used_bytes", "copied_bytes", "empty_bytes"]].sum(axis="columns")
    assert (parts == table["reserved_bytes"]).all()
    assert set(table.groupby("scheme")["source"].first().items()) == {
        ("slab", "computed"),
        ("blocks", "computed"),
        ("tree", "measured"),
    }


def test_with_a_what_if_run_nothing_counts_as_measured() -> None:
    run = small(0.5)
    what_if = fold(resimulate(bundled("bridge"), r=8).events)
    both = kv_allocation([run, what_if])
    assert not both.measured
    assert set(allocation_table(both).loc["source"]) == {"computed"}


def test_without_runs_there_is_nothing_to_show() -> None:
    nothing = kv_allocation([])
    assert allocation_sentence(nothing) == NOTHING_YET
    assert allocation_figure(nothing).data[0].x is not None
    assert allocation_steps_table(nothing).empty
