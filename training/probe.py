"""What a model predicts after a prompt: its next-token distribution against the known one, and
sampled text."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from training.choices import Distribution, entropy_bits


@dataclass(frozen=True)
class Reading:
    """A model's next-word uncertainty after a prompt against the truth, in bits."""

    prompt: str
    true_entropy: float
    entropy: float
    divergence: float

    @property
    def error(self) -> float:
        """The absolute error of the entropy."""
        return abs(self.entropy - self.true_entropy)


class Prober:
    """A model with its tokenizer. Every text is treated as the beginning of a document."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        self.model: Any = model
        self.tokenizer: Any = tokenizer

    def encode(self, text: str) -> list[int]:
        """The token ids of ``text``, after the token that begins a document."""
        return [self.tokenizer.bos_token_id, *self._plain_ids(text)]

    def decode(self, ids: list[int]) -> str:
        """The text of ``ids``, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _plain_ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    @torch.no_grad()
    def log_probabilities(self, ids: list[int]) -> Tensor:
        """Natural log-probabilities of the next token after every position of ``ids``."""
        inputs = torch.tensor([ids], device=self.model.device)
        scores: Tensor = self.model(input_ids=inputs).logits[0].float().log_softmax(-1).cpu()
        return scores

    def next_token_entropy(self, prompt: str) -> float:
        """Entropy, in bits, of the first token after ``prompt``."""
        last = self.log_probabilities(self.encode(prompt))[-1]
        return float(-(last.exp() * last).sum()) / math.log(2)

    def read(self, prompt: str, truth: Distribution) -> Reading:
        """Compare with the truth. The entropies are those of the first token of each word."""
        words = {word: self._plain_ids(f" {word}") for word in truth}
        first_tokens: dict[str, float] = defaultdict(float)
        for word, probability in truth.items():
            first_tokens[str(words[word][0])] += probability
        ids = self.encode(prompt)
        divergence = sum(
            p * math.log2(p / max(self._probability(words[word], after=ids), 1e-9))
            for word, p in truth.items()
        )
        return Reading(
            prompt, entropy_bits(first_tokens), self.next_token_entropy(prompt), divergence
        )

    def _probability(self, word: list[int], after: list[int]) -> float:
        scores = self._continuation_scores(word, after)
        return float(scores.gather(1, torch.tensor(word)[:, None]).sum().exp())

    def would_write(self, word: str, after: str) -> bool:
        """Whether every token of ``word`` is the most likely token at its position."""
        ids = self._plain_ids(f" {word}")
        return self._continuation_scores(ids, self.encode(after)).argmax(-1).tolist() == ids

    def _continuation_scores(self, word: list[int], after: list[int]) -> Tensor:
        return self.log_probabilities(after + word)[len(after) - 1 : -1]

    def generate(self, prompt: str, length: int, temperature: float = 1.0, seed: int = 1) -> str:
        """The prompt and a sampled continuation; at temperature 0, the greedy continuation."""
        ids = torch.tensor([self.encode(prompt)], device=self.model.device)
        torch.manual_seed(seed)
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0}
        if temperature == 0:
            sampling = {"do_sample": False}
        room = min(length, self.model.config.max_position_embeddings - ids.size(1))
        mask = torch.ones_like(ids)
        output = self.model.generate(ids, attention_mask=mask, max_new_tokens=room, **sampling)
        return self.decode(output[0].tolist())
