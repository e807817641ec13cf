"""Answers compared by a natural language inference model: the mechanics, on tiny random models."""

from itertools import combinations, product
from pathlib import Path

import pytest
import torch
from model_folders import with_config
from saying_model import saying_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from eab.analysis.answer_rules import exact, grouped
from eab.config import BranchingConfig
from eab.errors import ConfigError, ModelError
from eab.labs.tuning.entailment import load_entailment
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.measure import Measurement, load_rule
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.sweeping import sweep

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
