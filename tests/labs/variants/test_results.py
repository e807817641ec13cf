"""The same run with each cache: the events, their fold, the sentences, and what happens when
something goes wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice

import pytest
from invented_runs import with_each
from made_runs import run_of
from tiny_models import with_large_weights

from eab.caches.baselines import DeepCopyCache
from eab.config import BranchingConfig
from eab.engine.loop import stop_when
from eab.engine.request import Request
from eab.errors import ConfigError
from eab.events import (
    Event,
    KvMeasured,
    Probed,
    Progressed,
    RunEnded,
    StepTimed,
    TokensAppended,
)
from eab.figures.captions import cost_sentence
from eab.figures.memory_captions import memory_sentence
from eab.formatting import times
from eab.labs.variants import cache_pictures as caches
from eab.labs.variants.costs import (
    costs_table,
    variant_rows,
    variant_steps_table,
    variants_sentence,
)
from eab.labs.variants.measure import run_variants
from eab.labs.variants.results import (
    CACHES,
    OWN_CACHES,
    PROMPT_REUSED,
    REPEATS,
    RunTimed,
    VariantRuns,
    cache_variants,
)
from eab.models.loading import wrap_model
from eab.run import RunState
from eab.timing import NO_DIFFERENCE, TOO_FEW, Timing
from scripts import claims

CONFIG = BranchingConfig(entropy_threshold=1.5, max_paths=9, max_new_tokens=10, seed=2)
PROMPT = "w5 w9 w33 w2"
CACHE_VARIANTS = cache_variants().variants
NAMES = (*CACHES, PROMPT_REUSED)


def folded(events: Iterable[Event]) -> VariantRuns:
    return cache_variants().collect(events)


@pytest.fixture(scope="module")
def running(twins) -> Callable[..., Iterator[Event]]:
    """A function `running(config, prompt=..., ...)` that starts a comparison; yields its events."""
    return lambda config=CONFIG, prompt=PROMPT, **more: run_variants(
        twins("qwen2").ours, Request(prompt, config), CACHE_VARIANTS, **more
    )


@pytest.fixture(scope="module")
def events(running) -> list[Event]:
    return list(running())


@pytest.fixture(scope="module")
def compared(events: list[Event]) -> VariantRuns:
    return folded(events)


def stopped(events: Iterator[Event], when: Callable[[VariantRuns], bool]) -> VariantRuns:
    """A comparison that is stopped as soon as this condition holds for it."""
    found = cache_variants()
    for event in stop_when(events, lambda: when(found)):
        found.apply(event)
    return found


def test_every_cache_makes_its_own_run_of_the_same_tokens(twins, compared):
    alone = run_of(twins("qwen2").ours, PROMPT, CONFIG)
    assert [cache for cache, _ in compared.pairs] == list(NAMES)
    for cache, run in compared.pairs:
        assert run.started.config == replace(CONFIG, **CACHE_VARIANTS[cache])
        found, expected = run.samples, alone.samples
        assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert compared.agreed
    assert variants_sentence(compared) == "All 6 runs have the same tokens."
    assert compared.ended == RunEnded(0, "finished")
    assert compared.repeats == REPEATS


def test_the_costs_agree_with_the_events(events, compared):
    costs = {cost.variant: cost for cost in compared.costs()}
    place = 0
    for cache in NAMES:
        end = next(
            index for index in range(place, len(events)) if isinstance(events[index], RunEnded)
        )
        own = events[place:end]
        place = end + 1
        held = [event.usage.bytes_held for event in own if isinstance(event, KvMeasured)]
        timed = [event for event in own if isinstance(event, StepTimed)]
        cost = costs[cache]
        assert (cost.most_held_bytes, cost.held_last_bytes) == (max(held), held[-1])
        assert cost.tokens_through_model == sum(event.tokens for event in timed)
        assert cost.ended == "finished"


def test_times_come_from_the_repeats_and_before_those_from_the_first_run(events, compared):
    for cost in compared.costs():
        own = [one for one in events if isinstance(one, RunTimed) and one.variant == cost.variant]
        assert cost.seconds == Timing(tuple(one.seconds for one in own))
        assert cost.step_seconds == Timing(tuple(one.step_median for one in own))
    first_runs = [event for event in events if not isinstance(event, RunTimed | Progressed)]
    for name, run in folded(first_runs).pairs:
        [alone] = folded(first_runs).times(name)
        steps = [step.timing.seconds for step in run.steps]
        assert alone.seconds == pytest.approx(sum(steps), abs=1e-5)
        assert sum(one < alone.step_median - 1e-6 for one in steps[1:]) <= len(steps[1:]) // 2


def test_the_repeats_take_turns(events):
    timed = [event.variant for event in events if isinstance(event, RunTimed)]
    assert timed == list(NAMES) * REPEATS


def test_stop_keeps_the_finished_repeats(running):
    compared = stopped(running(), lambda found: found.repeats == 2)
    assert compared.ended.stopped
    assert compared.has_all_runs
    assert [len(cost.seconds.seconds) for cost in compared.costs()] == [2] * 6
    assert TOO_FEW in caches.time_sentence(compared)


def test_stop_ends_the_current_run_and_starts_no_other(running):
    compared = stopped(
        running(), lambda found: len(found.runs) == 2 and len(found.runs[1].steps) == 3
    )
    assert compared.ended == RunEnded(3, "stopped")
    assert [run.ended.reason for run in compared.runs] == ["finished", "stopped"]


def invented(seconds: dict[str, float], spread: float = 0.0) -> list[RunTimed]:
    """Seven repeats in turn, each with two steps of these seconds, plus `spread` per repeat."""
    return [
        RunTimed(name, (one, one + spread * number, one + spread * number), one, 0.0, 2, 2, 0)
        for number in range(7)
        for name, one in seconds.items()
    ]


@pytest.fixture(scope="module")
def first_runs(events: list[Event]) -> list[Event]:
    return [
        event
        for event in events
        if not isinstance(event, RunTimed | Progressed) and event != RunEnded(0, "finished")
    ]


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
    words = caches.time_sentence(compared)
    assert "; deep-copy 1.77× and recompute 4.08× as long as tree" in words
    assert (
        f"{NO_DIFFERENCE} for paged, concat-cow and prompt reused (medians of 7 repeats, me"
        in words
    )
    rows = dict(variant_rows(compared))
    assert rows["ms per step"][0] == "13.0 (11.5–14.5)"
    beside = ("–", NO_DIFFERENCE, NO_DIFFERENCE, "1.77×", "4.08×", NO_DIFFERENCE)
    assert rows["ms per step, times as long"] == beside
    assert claims.objections(claims.of_caches(compared)) == []
    answer = caches.answer_sentence(compared)
    assert answer.startswith("Without a KV cache, a step takes 4.08× as long as with the tree.")
    tree, copies = compared.costs()[0].most_held_bytes, compared.costs()[3].most_held_bytes
    assert f"{times(copies / tree)}) (medians of 7 repeats, measured)" in answer


def test_the_lines_have_bands_from_quartile_to_quartile(first_runs):
    seconds = dict.fromkeys(CACHES, 0.010)
    compared = folded([*first_runs, *invented(seconds, 0.001)])
    band, line = caches.time_figure(compared).data[:2]
    assert list(line.y) == pytest.approx([13.0, 13.0])
    assert list(band.y) == pytest.approx([14.5, 14.5, 11.5, 11.5])


def test_every_prefix_of_a_comparison_can_be_folded_and_shown(events):
    sentences = (caches.held_sentence, caches.time_sentence, caches.totals_sentence)
    shown = (caches.totals_figure, caches.held_figure, variant_rows, costs_table)
    for length in range(0, len(events), 211):
        part = folded(events[:length])
        assert part.ended is None
        for show in (*sentences, variants_sentence):
            assert show(part)
        for show in (*shown, variant_steps_table):
            show(part)
        assert part.agreed == (part.has_all_runs or not length)


def test_a_rank_threshold_is_probed_for_each_cache_with_the_same_result(running):
    config = replace(CONFIG, threshold_unit="rank", entropy_threshold=3.0)
    events = list(running(config, repeats=0))
    runs = folded(events).runs
    assert isinstance(events[0], Probed)
    assert [len(run.probe) for run in runs] == [10] * 6
    thresholds = [run.started.threshold_nats for run in runs]
    assert thresholds == pytest.approx([thresholds[0]] * 6, abs=1e-6)


def test_a_cache_that_exceeds_its_memory_limit_fails_alone(running):
    prompt = " ".join(f"w{index % 60 + 2}" for index in range(100))
    config = BranchingConfig(entropy_threshold=0.0, max_paths=30, max_new_tokens=6, kv_limit_mib=1)
    compared = folded(running(config, prompt, repeats=2))
    ended = {cache: (run.ended.reason, len(compared.times(cache))) for cache, run in compared.pairs}
    assert ended == {
        "tree": ("finished", 2),
        "paged": ("finished", 2),
        "concat-cow": ("finished", 2),
        "deep-copy": ("failed", 1),
        "recompute": ("failed", 1),
        PROMPT_REUSED: ("finished", 2),
    }
    assert not compared.agreed
    assert compared.repeats == 2
    assert "deep-copy failed: the KV cache needs" in variants_sentence(compared)
    for run in compared.runs:
        assert sum(sample.weight for sample in run.samples) == pytest.approx(1)
    ends = ("finished", "finished", "finished", "failed", "failed", "finished")
    assert variant_rows(compared)[-1] == ("ended", ends)


class LooksAway(DeepCopyCache):
    """A cache that is broken on purpose: its values are slightly too large."""

    def _seen(self, path, slot, key, value):
        keys, values = super()._seen(path, slot, key, value)
        return keys, values * 1.001


def test_different_values_in_a_cache_are_not_mistaken_for_rounding(running, monkeypatch):
    monkeypatch.setattr("eab.caches.factory.DeepCopyCache", LooksAway)
    compared = folded(running(repeats=0))
    [paged, other, broken, *last] = compared.agreements()
    assert (broken.variant, broken.explained) == ("deep-copy", False)
    assert broken.entropy_gap > 1e-5
    assert paged.explained
    assert other.explained
    assert all(agreement.explained for agreement in last)
    assert not compared.agreed
    assert "deep-copy gives other results" in variants_sentence(compared)


def test_a_token_at_which_trees_diverge_is_found_and_attributed_to_rounding(events):
    changed = list(events)
    second = next(index for index, event in enumerate(events) if isinstance(event, RunEnded)) + 1
    place = next(
        index
        for index, event in islice(enumerate(events), second, None)
        if isinstance(event, TokensAppended) and event.step == 4
    )
    changed[place] = with_each(events[place], token=0)
    compared = folded(changed)
    agreement = compared.agreements()[0]
    found = (agreement.variant, agreement.first_difference, agreement.explained)
    assert found == ("paged", 4, True)
    words = "paged takes another token at step 4 because of rounding"
    assert words in variants_sentence(compared)


def test_charts_show_the_figures_of_the_runs(compared):
    held = caches.held_figure(compared)
    assert [trace.name for trace in held.data] == list(NAMES)
    assert len({trace.line.dash for trace in held.data}) == len(NAMES)
    for trace, (_, run) in zip(held.data, compared.pairs, strict=True):
        assert [value * 1024 for value in trace.y] == [step.kv.bytes_held for step in run.steps]
    assert "KiB, measured" in held.layout.yaxis.title.text
    times = caches.time_figure(compared)
    assert all(list(trace.x) == list(range(1, 10)) for trace in times.data if trace.name), (
        "the prefill is no decode step"
    )
    bars = caches.totals_figure(compared)
    assert bars.data[0].text[0] == dict(variant_rows(compared))["peak bytes"][0]


def test_shared_and_private_bars_add_up_to_the_rows_that_each_path_sees(compared):
    run = compared.runs[0]
    shared, private = caches.paths_figure(run).data
    row, kv = run.started.model.row_bytes, run.peak_kv
    peak = next(step.step for step in run.steps if step.kv is kv)
    for number, path in enumerate(kv.paths):
        assert shared.y[number] * 1024 == pytest.approx(path.shared * row)
        assert (shared.y[number] + private.y[number]) * 1024 == pytest.approx(
            row * (len(PROMPT.split()) + peak)
        )
    assert f"{len(kv.paths)} paths have" in caches.paths_sentence(run)


def test_the_tables_have_a_row_per_cache_and_step(compared):
    table = variant_steps_table(compared)
    assert list(table["variant"].unique()) == list(NAMES)
    assert len(table) == 6 * 10
    costs = costs_table(compared).set_index("variant")
    for cache, own in table.groupby("variant"):
        assert costs.loc[cache, "copied_bytes"] == own["copied_bytes_so_far"].max()
        assert costs.loc[cache, "most_held_bytes"] == own["held_bytes"].max()
        assert costs.loc[cache, "tokens_through_model"] == own["tokens_through_model"].sum()


def test_the_sentences_of_a_run_describe_its_cache(compared):
    runs = dict(compared.pairs)
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
    variants = cache_variants().variants
    found = folded(run_variants(model, Request(PROMPT, CONFIG), variants, repeats=1))
    assert tuple(name for name, _ in found.pairs) == OWN_CACHES
    assert found.complete
    assert found.agreed
    assert found.repeats == 1
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
    assert compared.agreed
    assert all(agreement.first_difference is None for agreement in compared.agreements())
