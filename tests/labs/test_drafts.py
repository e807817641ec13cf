"""The sentences and figures about draft tokens, checked by counts and by the formulas."""

from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run_of

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.engine.speculation.stats import (
    best_length,
    expected_tokens,
    fit_pass_seconds,
    speculation_stats,
    speed_up,
)
from eab.labs import drafts
from eab.labs.charts import chart_figure
from eab.labs.drafts import DRAFTS, GAINS
from eab.labs.measure_runs import run_variants
from eab.labs.measurement import LabEvent, Report, Row
from eab.labs.variants import draft_length_variants
from eab.run.events import Speculated
from eab.timing import NO_DIFFERENCE
from scripts import claims


@pytest.fixture(scope="module")
def first_runs(twins) -> list[LabEvent]:
    """The events of one run per variant, without repeats."""
    target, draft = twins("llama").ours, twins("llama", 1).ours
    variants = draft_length_variants("model")
    config = BranchingConfig(
        max_new_tokens=30, max_paths=1, entropy_threshold=20.0, temperature=0.4
    )
    request = Request("w5 w9 w33 w2", config)
    return list(run_variants(target, request, "drafts", variants, draft, repeats=0))[:-1]


@pytest.fixture(scope="module")
def compared(first_runs: list[LabEvent]) -> Report:
    return Report().collect(first_runs)


def test_the_statistics_count_the_draft_tokens_of_the_events(compared):
    for run in compared.runs.values():
        found = speculation_stats(run)
        assert all(isinstance(one, Speculated) and 1 <= one.step < 30 for one in run.speculations)
        assert found.steps == 29
        assert found.draft_tokens == sum(len(one.draft_tokens) for one in run.speculations)
        assert found.accepted == sum(one.accepted for one in run.speculations)
        # With one path, each pass has one token that is not a draft, plus the draft tokens.
        assert found.tokens == found.forward_passes + found.draft_tokens
        # Each pass advances by one step more than its accepted draft tokens.
        assert found.steps == found.forward_passes + found.accepted
    plain = speculation_stats(compared.runs["plain"])
    assert (plain.draft_tokens, plain.acceptance_rate, plain.steps_per_pass) == (0, None, 1.0)


def test_the_chips_spell_the_text_with_rejected_tokens_before_their_replacements(
    compared,
):
    for run in list(compared.runs.values())[1:]:
        chips = drafts.chips(run, 0)
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
        kinds = [chip["kind"] for chip in drafts.chips(run, leaf.id)]
        accepted = {
            one.step + index
            for one in run.speculations
            if one.path in lineage
            for index in range(one.accepted)
        }
        steps = [token.step for token in run.tokens(leaf.id)]
        expected = ["accepted" if step in accepted else "own" for step in steps]
        assert [kind for kind in kinds if kind != "rejected"] == expected


def rows_of(report: Report) -> dict[str, tuple[str, ...]]:
    return {measure: tuple(cells) for measure, *cells in DRAFTS.table(report)}


def test_the_table_has_a_column_per_variant_with_formula_and_measurement(compared):
    rows = rows_of(compared)
    assert rows["Measure"] == tuple(draft_length_variants("model"))
    alpha = drafts.acceptance_rate(compared)
    formula = rows["steps per pass (formula)"]
    assert formula[3] == f"{expected_tokens(alpha, 4):.2f}"
    assert formula[0] == formula[-1] == rows["accepted / verified"][0] == "–"
    assert rows["of these, drafting"][0] == "0"


def test_the_charts_have_units_and_the_sentences_name_the_source_of_numbers(compared):
    for lab, names in (
        (DRAFTS, [f"formula, acceptance rate {drafts.acceptance_rate(compared):.2f}", "measured"]),
        (GAINS, ["computed here", "computed, large model", "measured here"]),
    ):
        figure = chart_figure(lab.chart(compared))
        assert [line.name for line in figure.data] == names
        assert list(figure.data[-1].x) == [1, 2, 4, 8]
        assert figure.layout.xaxis.title.text == "draft length (draft tokens per pass)"
        assert figure.layout.yaxis.title.text
    assert "(computed)" in GAINS.answer(compared)


def test_a_comparison_without_draft_tokens_says_so(twins):
    empty = Report()
    assert DRAFTS.answer(empty) == drafts.NOTHING_DRAFTED
    assert GAINS.answer(empty).startswith("No speed-up can be computed yet")
    assert DRAFTS.table(empty) == ()
    config = BranchingConfig(max_new_tokens=2, max_paths=1, entropy_threshold=20.0)
    variants, request = draft_length_variants("prompt-lookup"), Request("w5 w9", config)
    short = empty.collect(run_variants(twins("llama").ours, request, "drafts", variants))
    assert drafts.acceptance_rate(short) is None
    assert not GAINS.chart(short).lines


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


def with_repeats(first_runs: Sequence[LabEvent], rounds: Iterable[Sequence[Mapping]]) -> Report:
    """The same runs, with these rows about each variant in each repeat."""
    made = Report().collect(first_runs)
    for number, rows in enumerate(rounds, start=1):
        for name, row in zip(made.runs, rows, strict=True):
            made.apply(Row("repeats", {"variant": name, "repeat": number, **row}))
    return made


def invented(first_runs: Sequence[LabEvent], seconds: Sequence[float], repeats: int = 7) -> Report:
    """The same runs, with repeats that took these seconds per variant, give or take 3%."""

    def row(one: float, number: int) -> dict[str, float]:
        taken = one * (1 + 0.01 * (number - repeats // 2))
        times = {"decode": taken, "forward": taken, "drafting": taken / 10}
        return times | {"passes": 10, "tokens": 10, "drafted": 5}

    return with_repeats(
        first_runs, ([row(one, number) for one in seconds] for number in range(repeats))
    )


def test_a_faster_draft_length_is_reported_with_its_spread(first_runs):
    made = invented(first_runs, (0.2, 0.19, 0.1, 0.201, 0.3, 0.2))
    rows = rows_of(made)
    assert rows["ms of all steps"][0] == "200 (197–203)"
    beside = ("–", "0.95×", "0.5×", NO_DIFFERENCE, "1.5×", NO_DIFFERENCE)
    assert rows["ms of all steps, times as long"] == beside
    assert claims.objections(claims.of_draft_lengths(made)) == []
    answer = DRAFTS.answer(made)
    assert f"{drafts.acceptance_rate(made):.0%} of the verified draft tokens were" in answer
    assert answer.endswith("2 draft tokens: 2.00 times as fast here.")


def test_the_summary_says_if_no_draft_length_is_faster(first_runs):
    made = invented(first_runs, (0.2, 0.25, 0.3, 0.35, 0.4, 0.25))
    assert DRAFTS.answer(made).endswith("No draft length is measurably faster here.")


def test_a_single_timing_is_not_compared(compared):
    assert "ms of all steps, times as long" not in rows_of(compared)
    assert "here" not in DRAFTS.answer(compared)


def test_the_chart_of_gains_has_medians_with_quartiles(first_runs):
    made = invented(first_runs, (0.2, 0.1, 0.2, 0.2, 0.2, 0.2))
    measured = chart_figure(GAINS.chart(made)).data[-1]
    assert measured.y[0] == pytest.approx(2.0)
    assert measured.error_y.array[0] == pytest.approx(2 / 0.985 - 2, rel=0.01)


def with_costs(
    first_runs: Sequence[LabEvent], repeats: Iterable[tuple[float, float, float]]
) -> Report:
    """Runs with repeats of these costs in seconds: per pass, per token in it, per draft token."""

    def row(tokens: int, one_pass: float, token: float, draft: float) -> dict[str, float]:
        drafted, forward = 10 * (tokens - 1), 10 * (one_pass + token * tokens)
        times = {"decode": forward, "forward": forward, "drafting": draft * drafted}
        return times | {"passes": 10, "tokens": 10 * tokens, "drafted": drafted}

    return with_repeats(
        first_runs, ([row(tokens, *each) for tokens in (1, 2, 3, 5, 9, 2)] for each in repeats)
    )


def test_the_costs_of_a_pass_are_medians_over_the_repeats(first_runs):
    made = with_costs(
        first_runs, ((0.010 * slower, 0.002 * slower, 0.003) for slower in (1.0, 9.0, 1.0))
    )
    costs = drafts.pass_costs(made)
    assert costs.further_token == pytest.approx(0.002 / 0.012)
    assert costs.draft_token == pytest.approx(0.003 / 0.012)


@pytest.mark.parametrize(("drafting", "gains"), [((0.0, 0.0), True), ((0.0, 0.05), False)])
def test_a_computed_gain_within_the_spread_of_costs_is_not_reported(first_runs, drafting, gains):
    each = [drafting[number in (0, 1)] for number in range(7)]
    made = with_costs(first_runs, ((0.010, 0.0001, draft) for draft in each))
    here = GAINS.answer(made).split("With these costs, ")[1].split("; at ")[0]
    assert ("times as fast" in here) == gains
    assert ("no draft length is measurably faster" in here) != gains
