"""Answers of a model with known truth, and of the embedded one; AUROC, AURAC and the Brier score.
Answers compared by a natural language inference model: the mechanics, on tiny random models.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_folders import with_config
from saying_model import exact_answers, saying_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from eab.analysis.answer_rules import RULES, exact, grouped
from eab.analysis.answers import entropy
from eab.config import BranchingConfig
from eab.engine.models.loading import load_model
from eab.errors import ConfigError, ModelError, QuestionsError
from eab.labs.measurement import LabBegan, Report, Row
from eab.labs.tuning.evaluation_report import (
    AURAC,
    AUROC,
    BIAS,
    ERROR,
    EVALUATION,
    GREEDY,
    INDEPENDENT,
    SCORES,
    SEMANTIC,
    TREE,
    aurac,
    auroc,
    bootstrap,
    errors_table,
    evaluated,
    verdict,
)
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.measure import (
    Measurement,
    answer_rows,
    brier_score,
    load_entailment,
    load_rule,
)
from eab.labs.tuning.pictures import evaluation_figure
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.sweeping import sweep
from eab.run.events import ModelCard

PAIRED = "tree - independent"


def report(rows: Iterable[Mapping[str, Any]], card: ModelCard | None = None) -> Report:
    return Report().collect(evaluated(rows, card or saying_model(7).card, "a machine", {}))


def value(found: Report, measure: str, sampling: str, score: str = SEMANTIC) -> float:
    (row,) = found.rows("scores", measure=measure, sampling=sampling, score=score)
    return row["value"]


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
    assert (found.about["questions"], found.about["wrong"], found.about["chances"]) == (60, 20, 0)
    assert found.about["tokens"] == {GREEDY: 120, TREE: 180, INDEPENDENT: 240}
    assert (value(found, AUROC, TREE), value(found, AUROC, INDEPENDENT)) == (1.0, 0.5)
    assert value(found, AURAC, TREE) > value(found, AURAC, INDEPENDENT)
    (gain,) = found.rows("scores", sampling=PAIRED, score=SEMANTIC)
    assert gain["value"] == 0.5
    assert gain["low"] > 0
    assert value(found, AUROC, PAIRED, "length of the answer") == 0
    assert "is better than that of independent texts" in verdict(found)
    headings, *rows = EVALUATION.table(found)
    assert headings == ("Score", "Texts from", AUROC, AURAC, "Questions")
    (shown,) = [row for row in rows if row[:2] == (SEMANTIC, TREE)]
    assert shown[2] == "1.000 (1.000 to 1.000)"


def test_questions_whose_entropy_was_not_measured_are_left_out_and_counted() -> None:
    knows = [float(number % 3 == 0) for number in range(60)]
    found = report(ways([None] * 30 + knows[30:], [0.5] * 20 + [None] * 40))
    rows = found.rows("scores", measure=AUROC)
    counts = {row["sampling"]: row["questions"] for row in rows if row["score"] == SEMANTIC}
    assert counts == {TREE: 30, INDEPENDENT: 20}, "no question has both"
    assert value(found, AUROC, TREE) == 1.0
    assert {row["questions"] for row in rows if row["score"] != SEMANTIC} == {60}


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
    score = "error of the semantic entropy"
    assert value(found, ERROR, TREE, score) == pytest.approx(0.0, abs=1e-6)
    assert value(found, BIAS, TREE, score) == pytest.approx(0.0, abs=1e-6)
    assert value(found, ERROR, INDEPENDENT, score) > 0.001
    tokens = found.about["tokens"]
    assert tokens[INDEPENDENT] == pytest.approx(tokens[TREE], rel=0.3)
    assert "error is smaller than that of independent texts" in verdict(found)
    assert EVALUATION.table(found) == []
    assert errors_table(found)[1][1:3] == (TREE, "0.000 (0.000 to 0.000)")
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
    assert report(rows).about["wrong"] == 1


def recorded(low: float, gain: float, high: float) -> Report:
    """A report with these differences, and the same intervals for the scores."""
    rows = [
        {"measure": AUROC, "score": score, "sampling": way, "value": at, "questions": 50}
        | {"low": at - 0.05, "high": at + 0.02}
        for way, score, at in (
            (GREEDY, "-ln p of the answer", 0.9),
            (TREE, SEMANTIC, 0.8),
            (INDEPENDENT, SEMANTIC, 0.82),
            (PAIRED, SEMANTIC, gain),
        )
    ]
    rows[-1] |= {"low": low, "high": high}
    tokens = {GREEDY: 100, TREE: 1000, INDEPENDENT: 1100}
    began = LabBegan("a model", "float32", "a machine", "evaluation", {"tokens": tokens})
    return Report().collect([began, *(Row("scores", row) for row in rows)])


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((-0.05, -0.02, 0.01), "shows no measurable difference"),
        ((-0.15, -0.10, -0.05), "is worse than that of independent texts"),
        ((0.05, 0.10, 0.15), "is better than that of independent texts"),
    ],
)
def test_the_verdict_says_whether_the_tree_helps_or_not(
    interval: tuple[float, float, float], words: str
) -> None:
    assert words in verdict(recorded(*interval))


def test_the_chart_has_every_score_with_its_interval() -> None:
    found = recorded(-0.1, 0.0, 0.1)
    figure = evaluation_figure(found)
    shown = {
        (trace.name.split(",")[0], score): (x, x - down, x + up)
        for trace in figure.data
        for score, x, up, down in zip(
            trace.y, trace.x, trace.error_x.array, trace.error_x.arrayminus, strict=True
        )
    }
    assert len(shown) == 3
    for row in found.rows("scores")[:3]:
        expected = (row["value"], row["low"], row["high"])
        assert shown[row["sampling"], row["score"]] == pytest.approx(expected)
    assert "1,000 tokens" in figure.data[0].name
    assert len({trace.marker.symbol for trace in figure.data}) == 3, "a second cue besides colour"


PAIRS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12)


def arrays(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(score) for score, _ in pairs]), np.array([flag for _, flag in pairs])


def test_auroc_and_aurac_on_worked_examples() -> None:
    scores, wrong = arrays([(1, False), (2, True), (3, False), (4, True)])
    assert auroc(scores, wrong) == 0.75  # three of four pairs are in order
    assert aurac(scores, wrong) == pytest.approx((1 + 1 / 2 + 2 / 3 + 2 / 4) / 4)
    assert auroc(-scores, wrong) == 0.25
    assert auroc(np.zeros(4), wrong) == 0.5
    assert aurac(np.zeros(4), wrong) == pytest.approx(0.5)
    assert math.isnan(auroc(scores, np.zeros(4, dtype=bool)))


@given(PAIRS)
def test_auroc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    won = [
        1.0 if high > low else 0.5 if high == low else 0.0
        for high, wrong in pairs
        if wrong
        for low, other in pairs
        if not other
    ]
    value = auroc(*arrays(pairs))
    assert math.isnan(value) if not won else value == pytest.approx(np.mean(won))


@given(PAIRS)
def test_aurac_is_the_mean_over_random_orders_of_ties(pairs: list[tuple[int, bool]]) -> None:
    scores, wrong = arrays(pairs)
    generator = np.random.default_rng(0)
    found = []
    for _ in range(300):
        order = np.lexsort((generator.random(len(pairs)), scores))
        found.append((~wrong[order]).cumsum() / np.arange(1, len(pairs) + 1))
    assert aurac(scores, wrong) == pytest.approx(float(np.mean(found)), abs=0.1)


def test_an_interval_contains_its_value_and_is_reproducible() -> None:
    values = np.random.default_rng(3).normal(1.0, 1.0, 400)
    first = bootstrap(np.mean, values)
    assert first.low < first.value < first.high
    assert first.high - first.low == pytest.approx(2 * 1.96 / 20, rel=0.2)
    assert first.low > 0
    assert first == bootstrap(np.mean, values)
    assert first == bootstrap(np.mean, np.append(values, math.nan))  # a question not measured
    assert first.questions == 400
    assert not bootstrap(np.mean, np.array([math.nan])).is_known


@pytest.mark.parametrize(
    ("right", "wrong", "score"),
    [
        (1.0, [], 0.0),
        (0.7, [0.2, 0.1], 0.09 + 0.04 + 0.01),
        (0.0, [], 2.0),  # no answer was seen
        (0.6, [0.1], 0.16 + 0.01 + 0.09),  # the missing weight counts as one wrong answer
        (0.0, [0.5, 0.5], 1.5),  # the right answer was not seen
    ],
)
def test_the_brier_score_by_hand(right: float, wrong: list[float], score: float) -> None:
    assert brier_score(right, wrong) == pytest.approx(score)


@given(chance=st.floats(0, 1), weight=st.floats(0, 1))
def test_no_weights_score_better_on_average_than_the_true_probabilities(
    chance: float, weight: float
) -> None:
    def expected(told: float) -> float:
        """The mean score of a weight if the answer is right with this chance, else the other."""
        return chance * brier_score(told, [1 - told]) + (1 - chance) * brier_score(1 - told, [told])

    assert expected(chance) <= expected(weight) + 1e-12


WORDS = ["[PAD]", "[UNK]", "It", "is", "Paris", "Lyon", "Where", "?"]
GRID = Grid(base=BranchingConfig(max_new_tokens=4), seeds=range(3))
LABELS = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def tiny_model(folder: Path, labels: dict[int, str], weights: float | None = None) -> Path:
    """Save a model with random weights, or with all weights equal to `weights`."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        initializer_range=3.0,  # so each label wins for some pairs
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
    )
    model = BertForSequenceClassification(config)
    for parameter in model.parameters() if weights is not None else ():
        torch.nn.init.constant_(parameter, weights)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def test_every_pair_is_read_once_in_each_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = load_entailment(str(tiny_model(tmp_path, LABELS)))
    asked = list[tuple[str, str]]()
    monkeypatch.setattr(same, "_most_likely", lambda *pair: asked.append(pair) or 2)
    for _ in range(3):
        assert same("Q", "a", "b")
        assert same("Q", "b", " a ")
    assert asked == [("Q a", "Q b"), ("Q b", "Q a")]


def test_a_text_joins_the_first_group_that_matches_as_entailment_is_not_transitive() -> None:
    def same(question: str, one: str, other: str) -> bool:
        return {one, other} in ({"a", "b"}, {"b", "c"})

    assert grouped("Q", ["a", "b", "c"], same) == [0, 0, 1], "c is compared with a, not with b"
    assert grouped("Q", ["b", "a", "c"], same) == [0, 0, 0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_model_from_a_folder_decides_by_the_name_of_its_label(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Models number their labels differently, so the name decides."""
    labels = {number: LABELS[label] for number, label in enumerate(order)}
    [entailment] = [number for number, label in labels.items() if label == "ENTAILMENT"]
    folder = tiny_model(tmp_path / "nli", labels)
    same = load_rule(f"nli:{folder}")
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    said = set[bool]()
    for question, (one, other) in product(WORDS[2:], combinations(WORDS[2:6], 2)):
        likeliest = []
        for a, b in ((one, other), (other, one)):
            read = tokenizer()(f"{question} {a}", f"{question} {b}", return_tensors="pt")
            likeliest.append(int(model(**read).logits.argmax()))
        said.add(likeliest == [entailment] * 2)
        assert same(question, one, other) == (likeliest == [entailment] * 2)
    assert said == {True, False}


def test_a_model_without_the_label_is_refused_with_an_explanation(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "mood", {0: "happy", 1: "sad"})
    with pytest.raises(ModelError, match=r"has the labels happy, sad; .*'entailment'"):
        load_entailment(str(folder))


@pytest.mark.parametrize("change", [{"num_hidden_layers": 10**9}, {"vocab_size": 10**9}], ids=str)
def test_a_model_that_asks_for_too_much_is_refused_with_an_explanation(
    tmp_path: Path, change: dict[str, int]
) -> None:
    folder = tiny_model(tmp_path / "nli", LABELS)
    with pytest.raises(ModelError, match="cannot be loaded: its configuration "):
        load_entailment(with_config(folder, change))


def test_a_folder_or_name_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_entailment(str(tmp_path))
    for name in ("nli:", "nli: ", "fuzzy"):
        with pytest.raises(ConfigError, match="must be one of: exact, spelling, content, or nli:"):
            load_rule(name)
    assert load_rule("exact") is exact


def test_the_model_is_loaded_only_when_a_sweep_starts(tmp_path: Path) -> None:
    model, prompt = saying_model(3), TuningPrompt("a", Question("0", ("0",), {}, ""))
    steps = sweep(model, [prompt], GRID, measurement=Measurement("text", f"nli:{tmp_path}"))
    with pytest.raises(ModelError, match="cannot be loaded"):
        next(steps)


@pytest.mark.parametrize("label", [0, 1])
def test_a_sweep_compares_answers_by_the_model(tmp_path: Path, label: int) -> None:
    """A model with weights of 0 finds all labels equally likely, and gives the first one."""
    labels = {label: "entailment", 1 - label: "neutral", 2: "contradiction"}
    folder = tiny_model(tmp_path / "nli", labels, weights=0.0)
    prompt = TuningPrompt("a", Question("0", ("no such text",), {}, ""))
    how = Measurement("text", f"nli:{folder}")
    cells = [
        cell
        for step in sweep(saying_model(3), [prompt], GRID, measurement=how)
        for cell in step.cells
    ]
    for cell in cells:
        assert cell.distinct_texts > 2
        assert (cell.distinct_answers == 1) == (label == 0)
        assert cell.correct == pytest.approx(1.0 if label == 0 else 0.0)
