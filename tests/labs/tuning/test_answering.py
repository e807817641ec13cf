"""Answering with a model whose truth is known, and with the embedded one; the report and verdict."""

import math
from dataclasses import replace

import pytest
from saying_model import exact_answers, saying_model

from eab.analysis.answers import entropy
from eab.analysis.same_answer import RULES
from eab.config import BranchingConfig
from eab.errors import QuestionsError
from eab.labs.tuning.answering import GREEDY, INDEPENDENT, TREE, Answering, Reading, Way
from eab.labs.tuning.evaluation import SEMANTIC, report, verdict
from eab.labs.tuning.questions import Question
from eab.models.loading import load_model

SCORES = {
    SEMANTIC: 0.0,
    "predictive entropy": 0.0,
    "length-normalised predictive entropy": 0.0,
    "length of the answer": 4.0,
}
QUESTIONS = [Question(f"q{number}", ("right",), {}, "") for number in range(60)]


def readings(entropies: list[float], tokens: int) -> list[Reading]:
    """Every third answer is wrong."""
    return [
        Reading("x", number % 3 != 0, tokens, 1.5, SCORES | {SEMANTIC: value})
        for number, value in enumerate(entropies)
    ]


def ways(tree: list[float], independent: list[float]) -> list[Way]:
    config = BranchingConfig()
    two_texts = replace(config, policy="independent", max_paths=2)
    return [
        Way(GREEDY, replace(config, policy="greedy"), readings([0.0] * 60, 2)),
        Way(TREE, config, readings(tree, 3)),
        Way(INDEPENDENT, two_texts, readings(independent, 4)),
    ]


@pytest.mark.slow
def test_a_score_that_knows_the_wrong_answers_beats_one_that_does_not() -> None:
    knows, constant = [float(number % 3 == 0) for number in range(60)], [0.5] * 60
    found = report(QUESTIONS, ways(knows, constant))
    assert (found.facts, found.wrong, found.chances, found.texts) == (60, 20, 0, 2)
    assert found.tokens == {GREEDY: 120, TREE: 180, INDEPENDENT: 240}
    by_name = {(row.way, row.score): row for row in found.rows}
    assert by_name[TREE, SEMANTIC].auroc.value == 1.0
    assert by_name[INDEPENDENT, SEMANTIC].auroc.value == 0.5
    assert by_name[TREE, SEMANTIC].aurac.value > by_name[INDEPENDENT, SEMANTIC].aurac.value
    assert "is better than that of independent texts" in verdict(found)
    assert "is worse than that" in verdict(report(QUESTIONS, ways(constant, knows)))
    assert "no measurable difference" in verdict(report(QUESTIONS, ways(knows, knows)))


def test_nothing_to_compare_is_refused_in_words() -> None:
    right = [
        replace(way, readings=[replace(one, right=True) for one in way.readings])
        for way in ways([0.0] * 60, [0.0] * 60)
    ]
    with pytest.raises(QuestionsError, match="60 of 60 questions correctly"):
        report(QUESTIONS, right)


def answered(answering: Answering, questions: list[Question]) -> list[Way]:
    found: dict[str, Way] = {}
    for way, count in answering.ways(questions):
        found[way.name] = way
        assert len(way.readings) == count
    return list(found.values())


def test_a_tree_that_explores_everything_has_no_entropy_error() -> None:
    model = saying_model(7)
    truth = exact_answers(model, 2)
    config = BranchingConfig(entropy_threshold=0.0, branch_factor=8, max_paths=64, max_new_tokens=2)
    questions = [Question("0", (), truth, "")] * 6
    found = report(questions, answered(Answering(model, config, "text", RULES["exact"]), questions))
    tree, independent = found.errors
    assert tree.absolute.value == pytest.approx(0.0, abs=1e-6)
    assert independent.absolute.value > 0.001
    assert found.tokens[INDEPENDENT] == pytest.approx(found.tokens[TREE], rel=0.3)
    assert found.error_gain is not None
    assert "error is smaller than that of independent texts" in verdict(found)
    assert questions[0].entropy == pytest.approx(entropy(list(truth.values())))


@pytest.mark.slow
def test_the_embedded_model_knows_france_and_not_every_capital() -> None:
    model = load_model("embedded", "cpu", "float32")
    questions = [
        Question("The capital of France is", ("Paris",), {}, ""),
        Question("The capital of Nowhere is", ("Nothing",), {}, ""),
        Question("I tossed a coin and it landed on", (), {"heads.": 0.5, "tails.": 0.5}, ""),
    ]
    config = BranchingConfig(entropy_threshold=0.5, min_fork_weight=0.05, max_new_tokens=4)
    found = answered(Answering(model, config, "sentence", RULES["content"]), questions)
    greedy, tree, independent = found
    assert [one.right for one in greedy.readings] == [True, False, None]
    assert greedy.readings[0].answer == "Paris."
    assert greedy.readings[0].scores[SEMANTIC] == 0.0
    assert tree.readings[2].scores[SEMANTIC] == pytest.approx(math.log(2), abs=0.05)
    assert independent.tokens >= independent.config.max_paths
    assert report(questions, found).wrong == 1
