"""The scripts that train the embedded models: synthetic text, training loop, measurements."""

import math
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from training import acceptance, evaluate, measures, synthetic, train
from training.batches import PassReader, document_mask
from training.choices import (
    CHAINED_CHOICES,
    CHOICES,
    FIXED_CHOICES,
    Choice,
    entropy_bits,
    known_distributions,
)
from training.corpus import Corpus, tokenise
from training.network import build_model, widened
from training.optimizer import orthogonalise
from training.tokenizer import END_ID, for_transformers, train_tokenizer

pytestmark = pytest.mark.slow

DRAWS = 3000


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(islice(synthetic.documents(0), 200), 400)


@pytest.fixture
def corpus(tokenizer: Tokenizer) -> Corpus:
    documents = tokenise(tokenizer, list(islice(synthetic.documents(1), 300)))
    return Corpus(main=documents[:200], other=documents[200:250], validation=documents[250:])


# Synthetic text


@pytest.mark.parametrize(
    "choice", FIXED_CHOICES + CHAINED_CHOICES, ids=lambda choice: choice.prompt[:40]
)
def test_words_are_drawn_with_their_known_probabilities(choice: Choice) -> None:
    rng = random.Random(choice.prompt)
    documents = [choice.sample(rng) for _ in range(DRAWS)]
    for prompt, words in known_distributions([choice]).items():
        reached = [text for text in documents if text.startswith(prompt + " ")]
        counts = Counter(_word_after(prompt, text, words) for text in reached)
        assert set(counts) <= set(words)
        for word, p in words.items():
            # 4.5 standard deviations: a correct generator exceeds them once in 100,000 draws.
            noise = 4.5 * math.sqrt(len(reached) * p * (1 - p)) + 1e-9
            assert counts[word] == pytest.approx(p * len(reached), abs=noise)


def _word_after(prompt: str, text: str, words: dict[str, float]) -> str:
    rest = text[len(prompt) + 1 :]
    return max((word for word in words if rest.startswith(word)), key=len, default=rest)


def test_a_chain_knows_the_distribution_at_every_turn() -> None:
    known = known_distributions(CHAINED_CHOICES)
    coins = [prompt for prompt in known if prompt.startswith("I tossed three coins:")]
    assert len(coins) == 1 + 2 + 4
    assert all(entropy_bits(known[prompt]) == pytest.approx(1) for prompt in coins)
    flour = "Grandma went to the market and bought some flour. With the flour she made"
    assert known[flour] == {"bread": 1.0}
    for prompt, words in known_distributions(CHOICES).items():
        assert math.fsum(words.values()) == pytest.approx(1), prompt


def test_the_same_seed_gives_the_same_documents() -> None:
    first, again, other = (list(islice(synthetic.documents(seed), 50)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


# Tokens and batches


def test_the_tokenizer_restores_every_text_and_gives_each_digit_its_own_token(
    tokenizer: Tokenizer,
) -> None:
    for text in ("12 + 30 = 42", "Où ça? \U0001f600", "  two  spaces\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert [tokenizer.decode([token]) for token in tokenizer.encode("427").ids] == ["4", "2", "7"]


def test_attention_stays_inside_a_document() -> None:
    mask = document_mask(torch.tensor([[END_ID, 5, END_ID, 6, 7]]))[0, 0].int().tolist()
    assert mask == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]


def test_a_reader_continues_where_another_stopped(corpus: Corpus, tokenizer: Tokenizer) -> None:
    reader = PassReader(corpus, tokenizer, seed=3)
    while reader.number == 0 or reader.position < 500:  # into the second pass
        reader.next(2, 64)
    again = PassReader(corpus, tokenizer, 3, reader.number, reader.position)
    assert torch.equal(reader.next(2, 64).inputs, again.next(2, 64).inputs)


# The network and its optimiser


def test_a_widened_model_computes_the_same_function() -> None:
    narrow = build_model(64, 2, seed=1)
    for name, weight in narrow.named_parameters():
        if "norm" in name:
            weight.data.uniform_(0.5, 1.5)
    # Weights as large as after training: the norms' epsilon hardly counts.
    narrow.model.embed_tokens.weight.data.mul_(20)
    ids = torch.randint(4096, (2, 20), generator=torch.Generator().manual_seed(0))
    wide = widened(narrow, 96, seed=2)
    assert wide.config.hidden_size == 96
    with torch.no_grad():
        torch.testing.assert_close(wide(ids).logits, narrow(ids).logits, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="cannot widen a model of width 64 to 32"):
        widened(narrow, 32, seed=2)


@pytest.mark.parametrize("shape", [(3, 8, 20), (2, 20, 8)])
def test_muon_brings_the_singular_values_near_one(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.6
    assert values.max() < 1.3


# The training loop


@pytest.fixture
def run_in(tmp_path: Path, corpus: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    """Make runs of a tiny model that share one checkpoint. They are not compiled, which would take
    longer than the test.
    """
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(train, "CACHE", tmp_path)
    monkeypatch.setattr(train, "ROWS", 2)
    monkeypatch.setattr(train, "CONTEXT", 64)
    monkeypatch.setattr(train.Run, "_print_readings", lambda self: None)

    def make(seed: int = 1, **settings: object) -> train.Run:
        model, folder = build_model(32, 1, seed), tmp_path / "model"
        run = train.Run(model, tokenizer, corpus, 1.0, folder, 0, **settings)
        # Start in the middle of the schedule: the clock stands still between steps.
        run.progress.seconds = 30.0
        return run

    return make


def test_an_interrupted_training_run_resumes_exactly(run_in) -> None:
    whole = run_in()
    for _ in range(6):
        whole.step()
    first = run_in()
    for _ in range(3):
        first.step()
    first.save()
    second = run_in(seed=9)  # other weights, until it reads the checkpoint
    second.resume()
    for _ in range(3):
        second.step()
    assert second.progress.tokens == whole.progress.tokens
    for ours, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_training_lowers_the_loss_and_saves_a_model_that_loads(run_in, tmp_path: Path) -> None:
    run = run_in()
    losses = [float(run.step()) for _ in range(25)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.5
    run.save()
    prober = evaluate.load_prober(tmp_path / "model")
    assert prober.generate("I tossed", 5).startswith("I tossed")


def test_a_student_approaches_its_teacher(run_in) -> None:
    teacher = build_model(64, 1, seed=5)
    teacher.model.embed_tokens.weight.data.mul_(20)  # gives the teacher confident predictions
    run = run_in(teacher=teacher)
    losses = [float(run.step()) for _ in range(25)]
    assert losses[-1] < losses[0] - 0.2


def test_the_distillation_loss_of_an_identical_model_is_the_entropy(
    corpus: Corpus, tokenizer: Tokenizer
) -> None:
    model = build_model(32, 1, seed=5)
    batch = PassReader(corpus, tokenizer, seed=3).next(2, 16)
    log_p = train.logits_of(model, batch).log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    torch.testing.assert_close(train.distillation_loss(model, model, batch), entropy)


# The measurements


class FixedModel:
    """A model with the same distribution after every token."""

    def __init__(self, probabilities: list[float]) -> None:
        self.logits = torch.tensor(probabilities).log()
        self.device = torch.device("cpu")

    def __call__(self, input_ids: Tensor, **_: object) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


def prober(probabilities: list[float], tokenizer: Tokenizer | None = None) -> measures.Prober:
    return measures.Prober(
        FixedModel(probabilities), tokenizer and for_transformers(tokenizer, 512)
    )


def test_the_acceptance_rate_is_the_overlap_of_the_two_distributions() -> None:
    p, q, count = [0.6, 0.3, 0.1], [0.2, 0.3, 0.5], 4000
    prompts = [[0], [1, 2]] * (count // 2)
    accepted = acceptance.accepted_lengths(prober(p), prober(q), prompts, 4, seed=1)
    overlap = sum(map(min, p, q))  # 0.6 (Leviathan et al. 2023, theorem 3.5)
    for length in range(1, 5):
        expected = sum(overlap**k for k in range(1, length + 1)) / length
        rate = acceptance.acceptance_rate(accepted, length)
        assert rate == pytest.approx(expected, abs=4.5 * 0.5 / math.sqrt(count))


def test_a_model_accepts_all_of_its_own_drafts_and_none_that_are_impossible() -> None:
    same, sure, other = prober([0.5, 0.5]), prober([1.0, 0.0]), prober([0.0, 1.0])
    assert acceptance.accepted_lengths(same, same, [[0, 1], [1]], 8, seed=1) == [8, 8]
    assert acceptance.accepted_lengths(sure, other, [[0]], 3, seed=1) == [0]


def test_a_uniform_model_costs_ln_v_per_token(tokenizer: Tokenizer) -> None:
    size = tokenizer.get_vocab_size()
    uniform = prober([1 / size] * size, tokenizer)
    text = "The capital of France is Paris."
    tokens = len(tokenizer.encode(text, add_special_tokens=False).ids)
    loss = measures.nats_per_character(uniform, [text, text])
    assert loss == pytest.approx(tokens * math.log(size) / len(text), rel=1e-5)


def test_every_position_of_a_uniform_model_reaches_a_threshold_below_ln_v() -> None:
    uniform = prober([0.25] * 4)
    stories = measures.Stories(1, ((0, 1, 2, 3), (0, 3)), ended=2)
    assert measures.forks_per_100_tokens(uniform, stories, 1.38) == 100
    assert measures.forks_per_100_tokens(uniform, stories, 1.39) == 0


def test_repetition_counts_repeated_sequences_of_four_words() -> None:
    assert measures.repeated(["a b c d e f g"]) == 0
    assert measures.repeated(["a b c d a b c d"]) == pytest.approx(1 / 5)


def test_pieces_are_spread_over_the_whole_text() -> None:
    text = "".join(chr(65 + position // 1000) for position in range(20_000))
    cut = measures.pieces(text, 5)
    assert len(cut) == 5
    assert {len(piece) for piece in cut} == {measures.PIECE_CHARACTERS}
    assert [piece[0] for piece in cut] == ["A", "E", "I", "M", "Q"]


def test_prefixes_leave_room_in_the_context() -> None:
    documents = [tuple(range(600)), (1, 2), (1,)]
    cut = measures.prefixes(documents, 200, room=8, seed=0)
    assert all(1 <= len(prefix) <= measures.CONTEXT - 8 for prefix in cut)
    assert all(tuple(prefix) == documents[0][: len(prefix)] or prefix == [1] for prefix in cut)
