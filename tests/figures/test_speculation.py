"""What is said and drawn of guesses: counted by hand, and by the formulas."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.analysis.sweep import Sweep, draft_length_sweep, fold_sweep
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.events import Speculated
from eab.figures import speculation
from eab.figures.captions import cost_sentence
from eab.run import fold
from eab.speculation.formulas import best_length, expected_tokens, speed_up
from eab.speculation.stats import fit_pass_seconds, speculation_stats


@pytest.fixture(scope="module")
def sweep(twins) -> Sweep:
    from eab.engine.sweeping import run_sweep

    target, draft = twins("llama").ours, twins("llama", 1).ours
    empty = draft_length_sweep("model")
    config = BranchingConfig(
        max_new_tokens=30, max_paths=1, entropy_threshold=20.0, temperature=0.4
    )
    return fold_sweep(run_sweep(target, Request("w5 w9 w33 w2", config), empty.variants, draft), empty)


def test_the_variants_are_plain_some_lengths_and_adaptive(sweep):
    assert list(sweep.variants) == [
        "plain",
        "1 guess",
        "2 guesses",
        "4 guesses",
        "8 guesses",
        "adaptive",
    ]
    assert sweep.agreed
    assert sweep.kind == "draft length"


def test_the_outcome_counts_what_the_events_say(sweep):
    for name, run in sweep.pairs:
        found = speculation_stats(run)
        assert found.steps == 29
        assert found.forward_passes + found.accepted >= 29 or name == "plain"
        assert found.draft_tokens == sum(len(one.draft_tokens) for one in run.speculations)
        assert found.accepted == sum(one.accepted for one in run.speculations)
        assert (
            found.tokens == found.forward_passes + found.draft_tokens
        )  # one path: a token of its own in each pass, and the guesses
        assert (
            found.steps == found.forward_passes + found.accepted
        )  # and each pass brings one step more than it had guesses right
    plain = speculation_stats(sweep.runs[0])
    assert (plain.draft_tokens, plain.acceptance_rate, plain.steps_per_pass) == (0, None, 1.0)


def test_the_chips_spell_the_text_and_each_wrong_guess_stands_before_the_token_that_came(
    sweep,
):
    for _, run in sweep.pairs[1:]:
        chips = speculation.chips(run, 0)
        text = [chip["text"] for chip in chips if chip["kind"] != "wrong"]
        assert len(text) == 30
        assert sum(chip["kind"] == "right" for chip in chips) == speculation_stats(run).accepted
        wrong = [index for index, chip in enumerate(chips) if chip["kind"] == "wrong"]
        assert len(wrong) <= speculation_stats(run).rejected
        assert all(chips[index + 1]["kind"] == "own" for index in wrong)
        assert all(chips[index + 1]["text"] != chips[index]["text"] for index in wrong)


def test_chips_of_a_tree_follow_the_guesses_through_its_forks(twins):
    from eab.engine.loop import generate

    model = twins("qwen2").ours
    config = BranchingConfig(
        max_new_tokens=20, entropy_threshold=2.4, max_paths=7, drafter="model", draft_length=3
    )
    run = fold(generate(model, Request("w5 w9 w33 w2", config), model))
    for leaf in run.leaves():
        lineage = run.lineage(leaf.id)
        kinds = [
            chip["kind"] for chip in speculation.chips(run, leaf.id) if chip["kind"] != "wrong"
        ]
        right = {
            one.step + index
            for one in run.speculations
            if one.path in lineage
            for index in range(one.accepted)
        }
        steps = [token.step for token in run.tokens(leaf.id)]
        assert kinds == ["right" if step in right else "own" for step in steps]


def test_the_table_has_a_line_per_variant_and_the_formula_beside_the_measurement(sweep):
    table = speculation.outcome_table(sweep).set_index("draft length")
    assert list(table.index) == list(sweep.variants)
    alpha = speculation.acceptance(sweep)
    assert table.loc["4 guesses", "steps per pass (formula)"] == pytest.approx(
        expected_tokens(alpha, 4)
    )
    assert math.isnan(table.loc["plain", "steps per pass (formula)"])
    assert table.loc["plain", "times as fast"] == 1.0
    assert table.loc["8 guesses", "of which drafting"] > 0


def test_the_figures_have_units_and_their_sentences_say_where_numbers_come_from(sweep):
    steps, surface = speculation.tokens_figure(sweep), speculation.surface_figure(sweep)
    assert [line.name for line in steps.data][1] == "measured"
    assert len(steps.data[1].x) == 4
    for figure in (steps, surface):
        assert figure.layout.xaxis.title.text == "draft length (guesses per pass)"
        assert figure.layout.yaxis.title.text
    assert "(measured)" in speculation.tokens_sentence(sweep)
    assert "(computed)" in speculation.surface_sentence(sweep)


def test_a_comparison_without_guesses_says_so(twins):
    from eab.engine.sweeping import run_sweep

    empty = draft_length_sweep("prompt-lookup")
    assert (
        speculation.tokens_sentence(empty)
        == "No guess was made: the drafter found nothing to guess."
    )
    assert speculation.surface_sentence(empty) == "There is nothing to compute a speed-up from yet."
    assert speculation.outcome_table(empty).empty
    config = BranchingConfig(max_new_tokens=2, max_paths=1, entropy_threshold=20.0)
    short = fold_sweep(run_sweep(twins("llama").ours, Request("w5 w9", config), empty.variants), empty)
    assert speculation.acceptance(short) is None
    assert not speculation.surface_figure(short).data


def test_the_costs_of_a_run_say_how_often_the_drafter_was_right(sweep):
    found = speculation_stats(sweep.runs[3])
    words = cost_sentence(sweep.runs[3])
    assert (
        f"Drafter model: {found.accepted} of {found.draft_tokens} guesses right; 29 steps in {found.forward_passes} forward"
        in words
    )
    assert "Drafter" not in cost_sentence(sweep.runs[0])


@given(alpha=st.floats(0.0, 0.999), length=st.integers(0, 16))
def test_expected_tokens_is_the_closed_form(alpha, length):
    assert expected_tokens(alpha, length) == pytest.approx(
        (1 - alpha ** (length + 1)) / (1 - alpha)
    )


def test_published_values_of_the_formulas():
    """Leviathan et al. (2023), theorem 3.8: if a long pass is free, eight at c = 0.05, alpha = 0.8,
    3.1 times.
    """
    best = best_length(0.8, 0.05, lambda tokens: 1.0)
    assert best == 8
    assert speed_up(0.8, best, 0.05, lambda tokens: 1.0) == pytest.approx(3.09, abs=0.01)
    assert best_length(0.3, 0.5, lambda tokens: 1.0) == 0  # alpha below c: nothing pays
    assert (
        best_length(0.9, 0.0, lambda tokens: float(tokens)) == 0
    )  # a pass as long as its tokens: nothing pays


def test_the_pass_line_finds_planted_costs(sweep):
    start, slope = fit_pass_seconds(run for _, run in sweep.pairs) or (-1.0, -1.0)
    assert start >= 0
    assert slope >= 0
    assert fit_pass_seconds([sweep.runs[0]]) is None


def test_speculated_events_are_within_the_run(sweep):
    for _, run in sweep.pairs:
        assert all(isinstance(one, Speculated) and 1 <= one.step < 30 for one in run.speculations)
