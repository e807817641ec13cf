"""The same run with each cache: the events, their fold, the sentences, and what happens when
something goes wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest
from invented_runs import with_each
from made_runs import run_of
from tiny_models import with_large_weights

from eab.config import BranchingConfig
from eab.engine.caches.baselines import DeepCopyCache
from eab.engine.loop import stop_when
from eab.engine.models.loading import wrap_model
from eab.engine.request import Request
from eab.errors import ConfigError
from eab.figures.captions import cost_sentence
from eab.figures.kv_memory import memory_sentence
from eab.formatting import times
from eab.labs import caches
from eab.labs.caches import BYTES, CACHES_LAB
from eab.labs.charts import chart_figure
from eab.labs.measure_runs import run_variants
from eab.labs.measurement import LabEvent, OfRun, Report, Row
from eab.labs.variants import (
    CACHES,
    OWN_CACHES,
    PROMPT_REUSED,
    REPEATS,
    agree,
    agreements,
    cache_variants,
    costs_of,
    costs_table,
    has_all_runs,
    repeats_of,
    variants_sentence,
)
from eab.run import RunState
from eab.run.events import (
    KvMeasured,
    Probed,
    Progressed,
    RunEnded,
    StepTimed,
    TokensAppended,
)
from eab.timing import NO_DIFFERENCE, TOO_FEW, Timing
from scripts import claims

CONFIG = BranchingConfig(entropy_threshold=1.5, max_paths=9, max_new_tokens=10, seed=2)
PROMPT = "w5 w9 w33 w2"
CACHE_VARIANTS = cache_variants()
NAMES = (*CACHES, PROMPT_REUSED)


def folded(events: Iterable[LabEvent]) -> Report:
    return Report().collect(events)


@pytest.fixture(scope="module")
def running(twins) -> Callable[..., Iterator[LabEvent]]:
    """A function `running(config, prompt=..., ...)` that starts a comparison; yields its events."""
    return lambda config=CONFIG, prompt=PROMPT, **more: run_variants(
        twins("qwen2").ours, Request(prompt, config), "caches", CACHE_VARIANTS, **more
    )


@pytest.fixture(scope="module")
def events(running) -> list[LabEvent]:
    return list(running())


@pytest.fixture(scope="module")
def compared(events: list[LabEvent]) -> Report:
    return folded(events)


def stopped(events: Iterator[LabEvent], when: Callable[[Report], bool]) -> Report:
    """A comparison that is stopped as soon as this condition holds for it."""
    found = Report()
    for event in stop_when(events, lambda: when(found)):
        found.apply(event)
    return found


def test_every_cache_makes_its_own_run_of_the_same_tokens(twins, compared):
    alone = run_of(twins("qwen2").ours, PROMPT, CONFIG)
    assert list(compared.runs) == list(NAMES)
    for cache, run in compared.runs.items():
        assert run.started.config == replace(CONFIG, **CACHE_VARIANTS[cache])
        found, expected = run.samples, alone.samples
        assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert agree(compared)
    assert variants_sentence(compared) == "All 6 runs have the same tokens."
    assert compared.ended == RunEnded(0, "finished")
    assert len(compared.rows("repeats", variant="tree")) == REPEATS


def test_the_costs_agree_with_the_events(events, compared):
    costs = {cost.variant: cost for cost in costs_of(compared)}
    for cache in NAMES:
        own = [one.event for one in events if isinstance(one, OfRun) and one.name == cache]
        held = [event.usage.bytes_held for event in own if isinstance(event, KvMeasured)]
        timed = [event for event in own if isinstance(event, StepTimed)]
        cost = costs[cache]
        assert (cost.most_held_bytes, cost.held_last_bytes) == (max(held), held[-1])
        assert cost.tokens_through_model == sum(event.tokens for event in timed)
        assert cost.ended == "finished"


def test_times_come_from_the_repeats_and_before_those_from_the_first_run(compared, first_runs):
    for cost in costs_of(compared):
        rows = compared.rows("repeats", variant=cost.variant)
        assert cost.seconds == Timing(tuple(row["seconds"] for row in rows))
        assert cost.step_seconds == Timing(tuple(row["step"] for row in rows))
        first = compared.rows("steps", variant=cost.variant, repeat=1)
        assert sum(row["seconds"] for row in first) == pytest.approx(rows[0]["decode"])
        assert sum(row["seconds"] < rows[0]["step"] for row in first) <= len(first) // 2
    found = folded(first_runs)
    for name, run in found.runs.items():
        [alone] = repeats_of(found, name)
        assert alone["seconds"] == pytest.approx(sum(step.timing.seconds for step in run.steps))


def test_the_repeats_take_turns(compared):
    timed = [row["variant"] for row in compared.rows("repeats")]
    assert timed == list(NAMES) * REPEATS


def test_stop_keeps_the_finished_repeats(running):
    compared = stopped(running(), lambda found: len(found.rows("repeats")) == 2 * len(NAMES))
    assert compared.ended.stopped
    assert has_all_runs(compared)
    assert [len(cost.seconds.seconds) for cost in costs_of(compared)] == [2] * 6
    assert TOO_FEW in CACHES_LAB.answer(compared)


def test_stop_ends_the_current_run_and_starts_no_other(running):
    compared = stopped(
        running(), lambda found: [len(run.steps) for run in found.runs.values()][1:] == [3]
    )
    assert compared.ended.stopped
    assert [cost.ended for cost in costs_of(compared)] == ["finished", "stopped"]


def invented(seconds: dict[str, float], spread: float = 0.0) -> list[Row]:
    """Seven repeats in turn, each with two steps of these seconds, plus `spread` per repeat."""
    rows = []
    for number in range(7):
        for name, one in seconds.items():
            own, taken = {"variant": name, "repeat": number}, one + spread * number
            rows.append(Row("repeats", own | {"seconds": one, "first": one, "step": taken}))
            rows += [Row("steps", own | {"step": step, "seconds": taken}) for step in (1, 2)]
    return rows


@pytest.fixture(scope="module")
def first_runs(events: list[LabEvent]) -> list[LabEvent]:
    return [event for event in events if not isinstance(event, Row | Progressed | RunEnded)]


def test_a_measured_difference_is_reported_and_noise_is_not(first_runs):
    seconds = {
        "tree": 0.010,
        "paged": 0.01,
        "concat-cow": 0.0101,
        "deep-copy": 0.020,
        "recompute": 0.05,
    }
    seconds[PROMPT_REUSED] = 0.010
    compared = folded([*first_runs, *invented(seconds, 0.001)])
    rows = {measure: tuple(cells) for measure, *cells in CACHES_LAB.table(compared)}
    assert rows["ms per step"][0] == "13.0 (11.5–14.5)"
    beside = ("–", NO_DIFFERENCE, NO_DIFFERENCE, "1.77×", "4.08×", NO_DIFFERENCE)
    assert rows["ms per step, times as long"] == beside
    assert claims.objections(claims.of_caches(compared)) == []
    answer = CACHES_LAB.answer(compared)
    assert answer.startswith("Without a KV cache, a step takes 4.08× as long as with the tree (")
    tree, copies = costs_of(compared)[0].most_held_bytes, costs_of(compared)[3].most_held_bytes
    assert "(medians of 7 repeats, measured)" in answer
    assert answer.endswith(f"({times(copies / tree)}).")


def test_the_lines_have_bands_from_quartile_to_quartile(first_runs):
    seconds = dict.fromkeys(CACHES, 0.010)
    compared = folded([*first_runs, *invented(seconds, 0.001)])
    band, line = chart_figure(caches.time_chart(compared)).data[:2]
    assert list(line.y) == pytest.approx([13.0, 13.0])
    assert list(band.y) == pytest.approx([14.5, 14.5, 11.5, 11.5])


def test_every_prefix_of_a_comparison_can_be_folded_and_shown(events):
    for length in range(0, len(events), 211):
        part = folded(events[:length])
        assert part.ended is None
        for lab in (CACHES_LAB, BYTES, caches.PROCESSED):
            assert lab.answer(part)
            chart_figure(lab.chart(part))
            lab.table(part)
        assert variants_sentence(part)
        assert len(costs_table(part)) == len(part.runs)
        assert agree(part) == (has_all_runs(part) or not part.runs)


def test_a_rank_threshold_is_probed_for_each_cache_with_the_same_result(running):
    config = replace(CONFIG, threshold_unit="rank", entropy_threshold=3.0)
    events = list(running(config, repeats=0))
    runs = folded(events).runs.values()
    assert any(isinstance(one, OfRun) and isinstance(one.event, Probed) for one in events)
    assert [len(run.probe) for run in runs] == [10] * 6
    thresholds = [run.started.threshold_nats for run in runs]
    assert thresholds == pytest.approx([thresholds[0]] * 6, abs=1e-6)


def test_a_cache_that_exceeds_its_memory_limit_fails_alone(running):
    prompt = " ".join(f"w{index % 60 + 2}" for index in range(100))
    config = BranchingConfig(entropy_threshold=0.0, max_paths=30, max_new_tokens=6, kv_limit_mib=1)
    compared = folded(running(config, prompt, repeats=2))
    ended = {
        cache: (run.ended.reason, len(repeats_of(compared, cache)))
        for cache, run in compared.runs.items()
    }
    assert ended == {
        "tree": ("finished", 2),
        "paged": ("finished", 2),
        "concat-cow": ("finished", 2),
        "deep-copy": ("failed", 1),
        "recompute": ("failed", 1),
        PROMPT_REUSED: ("finished", 2),
    }
    assert not agree(compared)
    assert len(compared.rows("repeats", variant="tree")) == 2
    assert "deep-copy failed: the KV cache needs" in variants_sentence(compared)
    for run in compared.runs.values():
        assert sum(sample.weight for sample in run.samples) == pytest.approx(1)
    ends = ("finished", "finished", "finished", "failed", "failed", "finished")
    assert CACHES_LAB.table(compared)[-1] == ("ended", *ends)


class LooksAway(DeepCopyCache):
    """A cache that is broken on purpose: its values are slightly too large."""

    def _seen(self, path, slot, key, value):
        keys, values = super()._seen(path, slot, key, value)
        return keys, values * 1.001


def test_different_values_in_a_cache_are_not_mistaken_for_rounding(running, monkeypatch):
    monkeypatch.setattr("eab.engine.caches.factory.DeepCopyCache", LooksAway)
    compared = folded(running(repeats=0))
    [paged, other, broken, *last] = agreements(compared)
    assert (broken.variant, broken.explained) == ("deep-copy", False)
    assert broken.entropy_gap > 1e-5
    assert paged.explained
    assert other.explained
    assert all(agreement.explained for agreement in last)
    assert not agree(compared)
    assert "deep-copy gives other results" in variants_sentence(compared)


def test_a_token_at_which_trees_diverge_is_found_and_attributed_to_rounding(events):
    changed = list(events)
    place, found = next(
        (index, one)
        for index, one in enumerate(events)
        if isinstance(one, OfRun)
        and one.name == "paged"
        and isinstance(one.event, TokensAppended)
        and one.event.step == 4
    )
    changed[place] = OfRun("paged", with_each(found.event, token=0))
    compared = folded(changed)
    agreement = agreements(compared)[0]
    found = (agreement.variant, agreement.first_difference, agreement.explained)
    assert found == ("paged", 4, True)
    words = "paged takes another token at step 4 because of rounding"
    assert words in variants_sentence(compared)


def test_charts_show_the_figures_of_the_runs(compared):
    times = chart_figure(caches.time_chart(compared))
    lines = [trace for trace in times.data if trace.name]
    assert [trace.name for trace in lines] == list(NAMES)
    assert len({trace.line.dash for trace in lines}) == len(NAMES)
    assert all(list(trace.x) == list(range(1, 10)) for trace in lines), "the prefill is no step"
    peak = chart_figure(BYTES.chart(compared)).data[0]
    costs = {cost.variant: cost for cost in costs_of(compared)}
    for cache, mib in zip(peak.x, peak.y, strict=True):
        assert mib * 2**20 == pytest.approx(costs[cache].peak_bytes)
    table = costs_table(compared).set_index("variant")
    for cache, run in compared.runs.items():
        assert table.loc[cache, "copied_bytes"] == run.last_kv.bytes_copied
    assert "without one, " in caches.PROCESSED.answer(compared)
    ours, without = chart_figure(caches.PROCESSED.chart(compared)).data
    assert (ours.y[-1], without.y[-1]) == tuple(
        costs[name].tokens_through_model for name in ("tree", "recompute")
    )


def test_shared_and_private_bytes_add_up_to_the_rows_that_each_path_sees(compared):
    run = compared.runs["tree"]
    shared, private = chart_figure(caches.paths_chart(run)).data
    row, kv = run.started.model.row_bytes, run.peak_kv
    peak = next(step.step for step in run.steps if step.kv is kv)
    for number, path in enumerate(kv.paths):
        assert shared.y[number] * 1024 == pytest.approx(path.shared * row)
        assert (shared.y[number] + private.y[number]) * 1024 == pytest.approx(
            row * (len(PROMPT.split()) + peak)
        )
    assert f"{len(kv.paths)} paths have" in caches.paths_sentence(run)


def test_the_sentences_of_a_run_describe_its_cache(compared):
    runs = compared.runs
    assert "every step processes the whole text of" in memory_sentence(runs["recompute"])
    assert "At the peak (measured)" in cost_sentence(runs["tree"])
    assert "No KV cache yet" in cost_sentence(RunState(runs["tree"].started))


@pytest.mark.parametrize("kind", ["MambaConfig", "Lfm2Config"])
def test_a_model_with_states_is_compared_only_in_the_caches_that_it_supports(kind, words):
    more = {"layer_types": ["conv", "full_attention"]} if kind == "Lfm2Config" else {}
    model = wrap_model(with_large_weights(kind, **more), words, "it")
    for cache in CACHES:
        with nullcontext() if cache in OWN_CACHES else pytest.raises(ConfigError):
            run_of(model, PROMPT, CONFIG, cache=cache)
    request = Request(PROMPT, CONFIG)
    found = folded(run_variants(model, request, "caches", cache_variants(), repeats=1))
    assert tuple(found.runs) == OWN_CACHES
    assert found.complete
    assert has_all_runs(found)
    assert agree(found)
    assert len(found.rows("repeats")) == len(OWN_CACHES)
    sentence = variants_sentence(found)
    assert sentence.startswith(
        "Both runs have the same tokens. paged, concat-cow, deep-copy and prompt reused are left"
    )
    assert model.card.own_memory in sentence


EXTREMES = [
    {"entropy_threshold": 0.0, "max_paths": 1},
    {"entropy_threshold": 0.0, "max_paths": 60, "branch_factor": 16, "max_new_tokens": 4},
    {"r": 4096, "max_paths": 2},
    {"r": 1, "temperature": 0.01},
    {"top_k": 1, "top_p": 0.01, "max_new_tokens": 1},
    {"policy": "original", "entropy_threshold": 0.0, "max_paths": 3},
    {"policy": "greedy"},
]


@pytest.mark.parametrize("settings", EXTREMES, ids=str)
def test_all_caches_agree_at_extreme_settings(running, settings):
    compared = folded(running(replace(CONFIG, **settings), repeats=0))
    assert agree(compared)
    assert all(agreement.first_difference is None for agreement in agreements(compared))


def test_only_the_last_run_finds_its_prompt_in_the_prefix_cache(running):
    prompt = " ".join(f"w{index % 60 + 2}" for index in range(100))
    compared = folded(running(prompt=prompt, repeats=0))
    costs = {cost.variant: cost for cost in costs_of(compared)}
    reused = {name: (cost.tokens_reused, cost.reused_bytes) for name, cost in costs.items()}
    row, found = compared.runs["tree"].started.model.row_bytes, reused.pop(PROMPT_REUSED)
    assert found == (99, 99 * row), "the last token of a prompt is always computed"
    assert set(reused.values()) == {(0, 0)}
    tree, again = costs["tree"], costs[PROMPT_REUSED]
    assert tree.tokens_through_model - again.tokens_through_model == 99
    assert agree(compared)
    rows = {measure: cells for measure, *cells in CACHES_LAB.table(compared)}
    assert rows["prompt tokens reused"] == ["0", "0", "0", "0", "0", "99"]
