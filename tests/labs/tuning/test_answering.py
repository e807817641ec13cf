"""Answers of a model with known truth, and of the embedded one; the report, verdict and chart."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from saying_model import exact_answers, saying_model

from eab.analysis.answers import entropy
from eab.analysis.same_answer import RULES
from eab.config import BranchingConfig
from eab.errors import QuestionsError
from eab.labs.tuning.evaluation import answer_rows
from eab.labs.tuning.evaluation_report import (
    GREEDY,
    INDEPENDENT,
    SCORES,
    SEMANTIC,
    TREE,
    EvaluationReport,
    Interval,
    ScoreRow,
    report,
    verdict,
)
from eab.labs.tuning.pictures import evaluation_figure
from eab.labs.tuning.prompt_sets import Question
from eab.models.loading import load_model

QUESTIONS = [Question(f"q{number}", ("right",), {}, "") for number in range(60)]


def rows_of(way: str, entropies: Sequence[float | None], tokens: int) -> list[dict[str, Any]]:
    """Results with these semantic entropies, of which every third is a wrong answer."""
    scores = dict.fromkeys(SCORES, 0.0)
    about = {"sampling": way, "true_entropy": None, "tokens": tokens, "texts": 2}
    return [
        {**scores, **about, "right": number % 3 != 0, SEMANTIC: value}
        for number, value in enumerate(entropies)
    ]


def ways(tree: Sequence[float | None], independent: Sequence[float | None]) -> list[dict[str, Any]]:
    return [
        *rows_of(GREEDY, [0.0] * 60, 2),
        *rows_of(TREE, tree, 3),
        *rows_of(INDEPENDENT, independent, 4),
    ]


@pytest.mark.slow
def test_a_score_that_identifies_wrong_answers_beats_a_constant_one() -> None:
    knows, constant = [float(number % 3 == 0) for number in range(60)], [0.5] * 60
    found = report(ways(knows, constant))
    assert (found.facts, found.wrong, found.chances, found.texts) == (60, 20, 0, 2)
    assert found.tokens == {GREEDY: 120, TREE: 180, INDEPENDENT: 240}
    by_name = {(row.way, row.score): row for row in found.rows}
    assert by_name[TREE, SEMANTIC].auroc.value == 1.0
    assert by_name[INDEPENDENT, SEMANTIC].auroc.value == 0.5
    assert by_name[TREE, SEMANTIC].aurac.value > by_name[INDEPENDENT, SEMANTIC].aurac.value
    gains = found.gains
    assert (gains[SEMANTIC].value, gains[SEMANTIC].excludes_zero) == (0.5, True)
    assert (gains["predictive entropy"].value, gains["length of the answer"].value) == (0, 0)
    assert "is better than that of independent texts" in verdict(found)


def test_questions_whose_entropy_was_not_measured_are_left_out_and_counted() -> None:
    knows = [float(number % 3 == 0) for number in range(60)]
    found = report(ways([None] * 30 + knows[30:], [0.5] * 20 + [None] * 40))
    by_name = {row.way: row.auroc for row in found.rows if row.score == SEMANTIC}
    assert (by_name[TREE].value, by_name[TREE].questions) == (1.0, 30)
    assert by_name[INDEPENDENT].questions == 20
    assert SEMANTIC not in found.gains  # no question has both
    assert {row.auroc.questions for row in found.rows if row.score != SEMANTIC} == {60}


def test_a_report_without_wrong_answers_is_refused_with_an_explanation() -> None:
    right = [row | {"right": True} for row in ways([0.0] * 60, [0.0] * 60)]
    with pytest.raises(QuestionsError, match="60 of 60 questions correctly"):
        report(right)


def test_a_fully_explored_tree_has_no_entropy_error() -> None:
    model = saying_model(7)
    truth = exact_answers(model, 2)
    config = BranchingConfig(entropy_threshold=0.0, branch_factor=8, max_paths=64, max_new_tokens=2)
    questions = [Question("0", (), truth, "")] * 6
    found = report(answer_rows(model, config, questions, "text", RULES["exact"]))
    tree, independent = found.errors
    assert tree.absolute.value == pytest.approx(0.0, abs=1e-6)
    assert independent.absolute.value > 0.001
    assert found.tokens[INDEPENDENT] == pytest.approx(found.tokens[TREE], rel=0.3)
    assert found.error_gain is not None
    assert "error is smaller than that of independent texts" in verdict(found)
    assert questions[0].entropy == pytest.approx(entropy(list(truth.values())))


@pytest.mark.slow
def test_the_embedded_model_answers_some_questions_and_not_others() -> None:
    model = load_model("embedded", "cpu", "float32")
    questions = [
        Question("The capital of France is", ("Paris",), {}, ""),
        Question("The capital of Nowhere is", ("Nothing",), {}, ""),
        Question("I tossed a coin and it landed on", (), {"heads.": 0.5, "tails.": 0.5}, ""),
    ]
    config = BranchingConfig(entropy_threshold=0.5, min_fork_weight=0.05, max_new_tokens=4)
    rows = [*answer_rows(model, config, questions, "sentence", RULES["content"])]
    greedy, tree, independent = rows[:3], rows[3:6], rows[6:]
    assert [one["right"] for one in greedy] == [True, False, None]
    assert greedy[0]["answer"] == "Paris."
    assert greedy[0][SEMANTIC] is None
    assert tree[2][SEMANTIC] == pytest.approx(math.log(2), abs=0.05)
    assert sum(one["tokens"] for one in independent) >= independent[0]["texts"]
    assert report(rows).wrong == 1


def recorded(gain: Interval, best: float) -> EvaluationReport:
    rows = tuple(
        ScoreRow(way, score, Interval(value, value - 0.05, value + 0.02), Interval(0.9, 0.8, 1.0))
        for way, score, value in (
            ("greedy", "-ln p of the answer", best),
            ("tree", "semantic entropy", 0.8),
            ("independent", "semantic entropy", 0.82),
        )
    )
    tokens = {"greedy": 100, "tree": 1000, "independent": 1100}
    return EvaluationReport(50, 10, 0, tokens, 6, rows, {SEMANTIC: gain}, (), None)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Interval(-0.02, -0.05, 0.01), "shows no measurable difference"),
        (Interval(-0.10, -0.15, -0.05), "is worse than that of independent texts"),
        (Interval(0.10, 0.05, 0.15), "is better than that of independent texts"),
    ],
)
def test_the_verdict_says_whether_the_tree_helps_or_not(gain: Interval, words: str) -> None:
    assert words in verdict(recorded(gain, 0.9))


def test_the_chart_has_every_score_with_its_interval() -> None:
    found = recorded(Interval(0.0, -0.1, 0.1), 0.9)
    figure = evaluation_figure(found)
    shown = {
        (trace.name.split(",")[0], score): (x, x - down, x + up)
        for trace in figure.data
        for score, x, up, down in zip(
            trace.y, trace.x, trace.error_x.array, trace.error_x.arrayminus, strict=True
        )
    }
    for row in found.rows:
        expected = (row.auroc.value, row.auroc.low, row.auroc.high)
        assert shown[row.way, row.score] == pytest.approx(expected)
    assert "1,000 tokens" in figure.data[0].name
    assert len({trace.marker.symbol for trace in figure.data}) == 3, "a second cue besides colour"
