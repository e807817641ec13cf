"""Answers compared by a model of natural language inference: the mechanics, on tiny random models."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from eab.analysis.same_answer import grouped
from eab.cli.same_answer import load_rule
from eab.errors import ConfigError, ModelError
from eab.models.entailment import Entailment, load_entailment

WORDS = ["[PAD]", "[UNK]", "It", "is", "Paris", "Lyon", "Where", "?"]
LABELS = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def tiny_model(folder: Path, labels: dict[int, str]) -> Path:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


class Judging(torch.nn.Module):
    """Says what a table of pairs says, and remembers what it was asked."""

    def __init__(self, entailed: set[tuple[str, str]]) -> None:
        super().__init__()
        self.config = SimpleNamespace(id2label=LABELS)
        self.device = torch.device("cpu")
        self.entailed, self.asked = entailed, list[tuple[str, str]]()

    def forward(self, pair: tuple[str, str]) -> SimpleNamespace:
        self.asked.append(pair)
        return SimpleNamespace(logits=torch.eye(3)[[2 if pair in self.entailed else 1]])


class Pair(dict[str, tuple[str, str]]):
    """The inputs of a pair, as a tokenizer gives them."""

    def to(self, device: torch.device) -> "Pair":
        return self


def judge(*entailed: tuple[str, str]) -> tuple[Entailment, Judging]:
    model = Judging({(f"Q {one}", f"Q {other}") for one, other in entailed})
    return Entailment(model, lambda one, other, **_: Pair(pair=(one, other)), "table"), model


def test_the_same_are_texts_that_entail_each_other() -> None:
    same, _ = judge(("a dog", "an animal"), ("a dog", "a hound"), ("a hound", "a dog"))
    assert same("Q", "a dog", "a hound")
    assert same("Q", "a hound", "a dog")
    assert not same("Q", "a dog", "an animal"), "in one direction only"
    assert not same("Q", "an animal", "a dog")


def test_every_pair_is_read_once_in_each_direction() -> None:
    same, model = judge(("a", "b"), ("b", "a"))
    for _ in range(3):
        assert same("Q", "a", "b")
        assert same("Q", "b", " a ")
    assert model.asked == [("Q a", "Q b"), ("Q b", "Q a")]


def test_a_text_joins_the_first_group_as_entailment_is_not_transitive() -> None:
    same, _ = judge(("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"))
    assert grouped("Q", ["a", "b", "c"], same) == [0, 0, 1], "c is compared with a, not with b"
    assert grouped("Q", ["b", "a", "c"], same) == [0, 0, 0]


def test_a_model_from_a_folder_decides_by_its_own_label(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "nli", LABELS)
    same = load_rule(f"nli:{folder}")
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    pairs = [("Where?", one, other) for one in WORDS[2:6] for other in WORDS[2:6]]
    for question, one, other in pairs:
        likeliest = [
            int(
                model(
                    **tokenizer()(f"{question} {a}", f"{question} {b}", return_tensors="pt")
                ).logits.argmax()
            )
            for a, b in ((one, other), (other, one))
        ]
        assert same(question, one, other) == (likeliest == [2, 2])


def test_a_model_without_the_label_is_refused_in_words(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "mood", {0: "happy", 1: "sad"})
    with pytest.raises(ModelError, match=r"has the labels happy, sad; .*'entailment'"):
        load_entailment(str(folder))


def test_what_is_no_model_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_entailment(str(tmp_path))
    for name in ("nli:", "nli: ", "fuzzy"):
        with pytest.raises(ConfigError, match="must be one of: exact, spelling, content, or nli:"):
            load_rule(name)
