"""The sentences and figures about draft tokens, checked by counts and by the formulas."""

import math
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run_of

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.events import Speculated
from eab.labs.variants import draft_pictures as speculation
from eab.labs.variants import draft_speed_pictures as speculation_speed
from eab.labs.variants.measure import run_variants
from eab.labs.variants.results import (
    RunTimed,
    VariantEvent,
    VariantRuns,
    draft_length_variants,
)
from eab.speculation.stats import (
    best_length,
    expected_tokens,
    fit_pass_seconds,
    speculation_stats,
    speed_up,
)
from eab.timing import NO_DIFFERENCE
from scripts import claims


@pytest.fixture(scope="module")
def first_runs(twins) -> list[VariantEvent]:
    """The events of one run per variant, without repeats."""
    target, draft = twins("llama").ours, twins("llama", 1).ours
    variants = draft_length_variants("model").variants
    config = BranchingConfig(
        max_new_tokens=30, max_paths=1, entropy_threshold=20.0, temperature=0.4
    )
    request = Request("w5 w9 w33 w2", config)
    return list(run_variants(target, request, variants, draft, repeats=0))[:-1]


@pytest.fixture(scope="module")
def compared(first_runs: list[VariantEvent]) -> VariantRuns:
    return draft_length_variants("model").collect(first_runs)


def test_the_statistics_count_the_draft_tokens_of_the_events(compared):
    for _, run in compared.pairs:
        found = speculation_stats(run)
        assert all(isinstance(one, Speculated) and 1 <= one.step < 30 for one in run.speculations)
        assert found.steps == 29
        assert found.draft_tokens == sum(len(one.draft_tokens) for one in run.speculations)
        assert found.accepted == sum(one.accepted for one in run.speculations)
        # With one path, each pass has one token that is not a draft, plus the draft tokens.
        assert found.tokens == found.forward_passes + found.draft_tokens
        # Each pass advances by one step more than its accepted draft tokens.
        assert found.steps == found.forward_passes + found.accepted
    plain = speculation_stats(compared.runs[0])
    assert (plain.draft_tokens, plain.acceptance_rate, plain.steps_per_pass) == (0, None, 1.0)


def test_the_chips_spell_the_text_with_rejected_tokens_before_their_replacements(
    compared,
):
    for _, run in compared.pairs[1:]:
        chips = speculation.chips(run, 0)
        text = [chip["text"] for chip in chips if chip["kind"] != "rejected"]
        assert len(text) == 30
        assert sum(chip["kind"] == "accepted" for chip in chips) == speculation_stats(run).accepted
        rejected = [index for index, chip in enumerate(chips) if chip["kind"] == "rejected"]
        assert len(rejected) <= speculation_stats(run).rejected
        assert all(chips[index + 1]["kind"] == "own" for index in rejected)
        assert all(chips[index + 1]["text"] != chips[index]["text"] for index in rejected)


def test_chips_of_a_tree_follow_the_draft_tokens_through_its_forks(twins):
    model = twins("qwen2").ours
    settings = {"max_new_tokens": 20, "entropy_threshold": 2.4, "max_paths": 7}
    run = run_of(model, "w5 w9 w33 w2", draft=model, drafter="model", draft_length=3, **settings)
    for leaf in run.leaves():
        lineage = run.lineage(leaf.id)
        kinds = [chip["kind"] for chip in speculation.chips(run, leaf.id)]
        accepted = {
            one.step + index
            for one in run.speculations
            if one.path in lineage
            for index in range(one.accepted)
        }
        steps = [token.step for token in run.tokens(leaf.id)]
        expected = ["accepted" if step in accepted else "own" for step in steps]
        assert [kind for kind in kinds if kind != "rejected"] == expected


def test_the_table_has_a_row_per_variant_with_formula_and_measurement(compared):
    table = speculation.outcome_table(compared).set_index("draft length")
    assert list(table.index) == list(compared.variants)
    alpha = speculation.acceptance_rate(compared)
    found = table.loc["4 draft tokens", "steps per pass (formula)"]
    assert found == pytest.approx(expected_tokens(alpha, 4))
    assert math.isnan(table.loc["plain", "steps per pass (formula)"])
    assert table.loc["plain", "times as fast"] == 1.0
    assert table.loc["8 draft tokens", "of which drafting"] > 0


def test_the_figures_have_units_and_the_sentences_name_the_source_of_numbers(compared):
    steps, surface = speculation.tokens_figure(compared), speculation_speed.surface_figure(compared)
    assert [line.name for line in steps.data][1] == "measured"
    assert len(steps.data[1].x) == 4
    for figure in (steps, surface):
        assert figure.layout.xaxis.title.text == "draft length (draft tokens per pass)"
        assert figure.layout.yaxis.title.text
    assert "measured)" in speculation.tokens_sentence(compared)
    assert "(computed)" in speculation_speed.surface_sentence(compared)


def test_a_comparison_without_draft_tokens_says_so(twins):
    empty = draft_length_variants("prompt-lookup")
    assert speculation.tokens_sentence(empty).startswith("No draft tokens: ")
    assert speculation_speed.surface_sentence(empty).startswith("No speed-up can be computed yet")
    assert speculation.outcome_table(empty).empty
    config = BranchingConfig(max_new_tokens=2, max_paths=1, entropy_threshold=20.0)
    events = run_variants(twins("llama").ours, Request("w5 w9", config), empty.variants)
    short = empty.collect(events)
    assert speculation.acceptance_rate(short) is None
    assert not speculation_speed.surface_figure(short).data


@given(alpha=st.floats(0.0, 0.999), length=st.integers(0, 16))
def test_expected_tokens_agrees_with_the_closed_form(alpha, length):
    assert expected_tokens(alpha, length) == pytest.approx(
        (1 - alpha ** (length + 1)) / (1 - alpha)
    )


def test_the_formulas_give_the_published_values():
    """Leviathan et al. (2023), theorem 3.8: if longer passes cost nothing extra, the best length at
    c = 0.05 and alpha = 0.8 is eight, which is 3.1 times as fast.
    """
    best = best_length(0.8, 0.05, lambda tokens: 1.0)
    assert best == 8
    assert speed_up(0.8, best, 0.05, lambda tokens: 1.0) == pytest.approx(3.09, abs=0.01)
    assert best_length(0.3, 0.5, lambda tokens: 1.0) == 0  # alpha below c: no length pays
    # If a pass takes as long as its tokens one by one, no length pays
    assert best_length(0.9, 0.0, lambda tokens: float(tokens)) == 0


def test_the_fit_of_pass_times_recovers_known_costs():
    passes = [(1.0, 0.012), (3.0, 0.016), (5.0, 0.020)]
    assert fit_pass_seconds(passes) == pytest.approx((0.010, 0.002))
    assert fit_pass_seconds(passes[:1]) is None


def invented(
    first_runs: Sequence[VariantEvent], seconds: Sequence[float], repeats: int = 7
) -> VariantRuns:
    """The same runs, with repeats that took these seconds per variant, give or take 3%."""
    made = draft_length_variants("model").collect(first_runs)
    for number in range(repeats):
        for name, one in zip(made.variants, seconds, strict=True):
            taken = one * (1 + 0.01 * (number - repeats // 2))
            made.apply(RunTimed(name, (9.0, taken), taken, taken / 10, 10, 10, 5))
    return made


def test_a_faster_draft_length_is_reported_with_its_spread(first_runs):
    made = invented(first_runs, (0.2, 0.19, 0.1, 0.201, 0.3, 0.2))
    words = speculation_speed.speed_sentence(made)
    assert "200 ms (197–203)" in words
    assert "1 draft token (1.05 times as fast) and 2 draft tokens (2.00 times as fast);" in words
    assert "slower: 8 draft tokens;" in words
    assert f"{NO_DIFFERENCE}: 4 draft tokens and adaptive (medians of 7" in words
    assert claims.objections(claims.of_draft_lengths(made)) == []
    answer = speculation_speed.answer_sentence(made)
    assert (
        f"{speculation.acceptance_rate(made):.0%} of the verified draft tokens were accepted"
        in answer
    )
    assert answer.endswith("2 draft tokens: 2.00 times as fast here.")


def test_the_summary_says_if_no_draft_length_is_faster(first_runs):
    made = invented(first_runs, (0.2, 0.25, 0.3, 0.35, 0.4, 0.25))
    answer = speculation_speed.answer_sentence(made)
    assert answer.endswith("No draft length is measurably faster here.")
    words = speculation_speed.speed_sentence(made)
    assert "; slower: 1 draft token, 2 draft tokens, 4 draft tokens, 8 draft tokens and" in words
    assert "times as fast" not in words


def test_a_single_timing_is_not_compared(compared):
    assert "measured once, too few repeats to compare" in speculation_speed.speed_sentence(compared)
    assert "speed against plain" not in dict(speculation.outcome_rows(compared))


def test_the_table_and_chart_of_times_have_medians_with_quartiles(first_runs):
    made = invented(first_runs, (0.2, 0.1, 0.2, 0.2, 0.2, 0.2))
    rows = dict(speculation.outcome_rows(made))
    assert rows["speed against plain"][:3] == ("–", "2.00 times as fast", NO_DIFFERENCE)
    assert rows["ms of all steps"][0] == "200 (197–203)"
    table = speculation.outcome_table(made).set_index("draft length")
    assert table.loc["plain", "seconds, upper quartile"] == pytest.approx(0.203)
    assert table.loc["plain", "repeats"] == 7
    figure = speculation_speed.speed_figure(made)
    plain, drafted = figure.data
    assert list(plain.y) == [200.0] * 5
    assert drafted.y[0] == pytest.approx(100.0)
    assert drafted.error_y.array[0] == pytest.approx(1.5)
    assert (figure.layout.shapes[0].y0, figure.layout.shapes[0].y1) == pytest.approx((197, 203))


def with_costs(
    first_runs: Sequence[VariantEvent], repeats: Iterable[tuple[float, float, float]]
) -> VariantRuns:
    """Runs with repeats of these costs in seconds: per pass, per token in it, per draft token."""
    made = draft_length_variants("model").collect(first_runs)
    for one_pass, token, draft in repeats:
        for name, tokens in zip(made.variants, (1, 2, 3, 5, 9, 2), strict=True):
            drafts, forward = 10 * (tokens - 1), 10 * (one_pass + token * tokens)
            made.apply(
                RunTimed(name, (0.0, forward), forward, draft * drafts, 10, 10 * tokens, drafts)
            )
    return made


def test_the_costs_of_a_pass_are_medians_over_the_repeats(first_runs):
    made = with_costs(
        first_runs, ((0.010 * slower, 0.002 * slower, 0.003) for slower in (1.0, 9.0, 1.0))
    )
    costs = speculation_speed.pass_costs(made)
    assert costs.further_token == pytest.approx(0.002 / 0.012)
    assert costs.draft_token == pytest.approx(0.003 / 0.012)


@pytest.mark.parametrize(("drafting", "gains"), [((0.0, 0.0), True), ((0.0, 0.05), False)])
def test_a_computed_gain_within_the_spread_of_costs_is_not_reported(first_runs, drafting, gains):
    drafts = [drafting[number in (0, 1)] for number in range(7)]
    made = with_costs(first_runs, ((0.010, 0.0001, draft) for draft in drafts))
    words = speculation_speed.surface_sentence(made)
    here = words.split("With these costs, ")[1].split("; at ")[0]
    assert ("times as fast" in here) == gains
    assert ("no draft length is measurably faster" in here) != gains
