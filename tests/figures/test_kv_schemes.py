"""KV allocation: a run counted by hand, and real runs, where blocks of one row equal the tree. The
chart, the words and the tables show exactly these numbers.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import bundled, run_of
from policies import BY_STEP

from eab.config import BranchingConfig
from eab.engine.what_if.resimulate import resimulate
from eab.errors import ConfigError, RecordError
from eab.figures.kv_schemes import (
    SCHEMES,
    KvAllocation,
    Reserved,
    allocation_figure,
    allocation_sentence,
    allocation_steps_table,
    allocation_table,
    block_usages,
    kv_allocation,
)
from eab.formatting import human_bytes
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import KvMeasured, KVUsage, PathRows
from eab.timing import NOTHING_YET

COIN = np.full((2, 2), 0.5)
THREE_TOSSES = BranchingConfig(0.5, branch_factor=2, max_paths=4, max_new_tokens=3, r=1)
RECORDED = [fold(bundled_runs.events_of(one)) for one in bundled_runs.recordings()]


def tossed(prompt: str = "0 1 0 1 1") -> RunState:
    return run_of(TableModel(COIN), prompt, THREE_TOSSES)


def in_rows(found: KvAllocation, run: RunState) -> dict[str, list[tuple[int, int, int]]]:
    row = run.started.model.row_bytes
    return {
        scheme: [(one.used // row, one.copied // row, one.empty // row) for one in steps]
        for scheme, steps in found.steps.items()
    }


@pytest.mark.parametrize("size", [1, 4, 16])
def test_the_paged_cache_holds_what_is_computed_for_blocks(size: int) -> None:
    model = TableModel(random_table(3, 4))
    config = BranchingConfig(0.9, branch_factor=3, max_paths=8, max_new_tokens=9)
    computed = block_usages(run_of(model, "0 1 0 1 1", config), size)
    paged = run_of(model, "0 1 0 1 1", replace(config, cache="paged", block_size=size))
    measured = [step.kv for step in paged.steps if step.kv]
    assert len(measured) == 9
    for (_, _, blocks), real in zip(computed, measured, strict=True):
        fields = ("bytes_held", "rows_shared", "rows_private", "rows_spare", "paths")
        assert [getattr(real, name) for name in fields] == [
            getattr(blocks, name) for name in fields
        ]


def test_three_tosses_counted_by_hand() -> None:
    """1 path with the 5 prompt tokens, then 2 paths with one more each, then 4 with two more."""
    run = tossed()
    assert [len(step.kv.paths) for step in run.steps if step.kv] == [1, 2, 4]
    assert in_rows(kv_allocation([run], block_size=4), run) == {
        "slab": [(5, 0, 3), (7, 5, 4), (11, 17, 4)],
        "blocks": [(5, 0, 3), (7, 1, 4), (11, 5, 4)],
        "tree": [(5, 0, 0), (7, 0, 0), (11, 0, 0)],
    }


def test_runs_add_up_from_the_step_at_which_each_one_starts() -> None:
    runs = [tossed(), tossed("1 0 1")]
    alone = [kv_allocation([run], 4) for run in runs]
    both = kv_allocation(runs, 4, first_steps=[0, 2])
    for scheme in SCHEMES:
        first, second = (one.steps[scheme] for one in alone)
        assert both.steps[scheme] == (*first[:2], first[2] + second[0], *second[1:])
    together = kv_allocation(runs, 4)
    assert together.steps["slab"][1] == alone[0].steps["slab"][1] + alone[1].steps["slab"][1]


def test_nothing_is_reserved_without_runs() -> None:
    nothing = kv_allocation([])
    assert nothing.peak("blocks") == 0
    assert nothing.sum("tree") == Reserved()
    assert nothing.wasted_share("slab") == 0


def test_the_waste_counts_empty_and_duplicated_rows_over_all_steps() -> None:
    found = kv_allocation([tossed()], 4)
    assert found.peak("slab") == 32 * 16
    assert found.sum("slab") == Reserved(23 * 16, 22 * 16, 11 * 16)
    assert found.wasted_share("slab") == pytest.approx(33 / 56)
    assert found.wasted_share("tree") == 0
    assert (found.rs, found.measured) == ((1,), True)


@pytest.mark.parametrize(
    "run",
    [run for run in RECORDED if run.started.config.cache == "tree"],
    ids=lambda run: run.started.prompt[:20],
)
def test_blocks_of_one_row_equal_the_tree_and_parts_add_up_to_the_bytes_held(
    run: RunState,
) -> None:
    for _, tree, blocks in block_usages(run, 1):
        assert blocks.paths == tree.paths
        assert (blocks.rows_shared, blocks.rows_private) == (tree.rows_shared, tree.rows_private)
        assert blocks.rows_independent == tree.rows_independent
    found = kv_allocation([run])
    row, config = run.started.model.row_bytes, run.started.config
    longest = len(run.started.prompt_tokens) + config.max_new_tokens
    measured = [step.kv for step in run.steps if step.kv is not None]
    assert [one.total for one in found.steps["tree"]] == [kv.bytes_held for kv in measured]
    slabs = [len(kv.paths) * longest * row for kv in measured]
    assert [one.total for one in found.steps["slab"]] == slabs
    for slab, blocks, tree in zip(*found.steps.values(), strict=True):
        assert slab.used == blocks.used == tree.used > 0
        assert tree.copied == 0 <= blocks.copied <= slab.copied
        assert min(slab.empty, blocks.empty, tree.empty) >= 0
        assert blocks.total % (found.block_size * row) == 0


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(2, 6),
    block_size=st.integers(1, 20),
    config=st.builds(
        BranchingConfig,
        entropy_threshold=st.floats(0, 1.5),
        policy=st.sampled_from(BY_STEP),
        drafter=st.sampled_from(["none", "prompt-lookup", "sibling-lookup"]),
        max_paths=st.just(7),
        max_new_tokens=st.just(12),
        seed=st.integers(0, 10_000),
    ),
)
def test_the_allocation_of_any_run_of_the_engine_can_be_computed(
    size: int, block_size: int, config: BranchingConfig
) -> None:
    model = TableModel(random_table(config.seed, size, 0.3), stop_ids=[size - 1])
    run = run_of(model, "0 0 1 0 0 1", config)
    for _, tree, blocks in block_usages(run, 1):
        assert blocks.paths == tree.paths
        assert blocks.rows_private == tree.rows_private
    for slab, blocks, tree in zip(*kv_allocation([run], block_size).steps.values(), strict=True):
        assert tree.used <= blocks.used + blocks.copied <= slab.used + slab.copied
        assert min(one for each in (slab, blocks, tree) for one in (each.copied, each.empty)) >= 0


def test_a_run_of_another_cache_is_refused() -> None:
    run = run_of(TableModel(COIN), "0 1", THREE_TOSSES, cache="deep-copy")
    with pytest.raises(ConfigError, match="this run used the cache 'deep-copy'"):
        kv_allocation([run])


@pytest.mark.parametrize("rows", [PathRows(0, 0, 9), PathRows(3, 0, 5)])
def test_a_measurement_that_is_impossible_in_the_tree_is_refused(rows: PathRows) -> None:
    """Path 0 has more rows than its text can have; path 3 has rows before it exists."""
    run = tossed()
    damaged = fold([run.started])
    damaged.paths = run.paths
    damaged.apply(KvMeasured(0, KVUsage(0, 0, 9, 0, 9, (rows,))))
    with pytest.raises(RecordError, match=f"path {rows.path} has"):
        kv_allocation([damaged])


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
