"""Training batches: rows of equal length, with a mask that keeps attention within documents."""

from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus import Corpus, Tokens, mixed_pass
from training.tokenizer import END_ID


@dataclass(frozen=True)
class Batch:
    """Inputs, the tokens that follow them, and a mask of which positions may attend to which."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.inputs.to(device), self.targets.to(device), self.mask.to(device))


def document_mask(inputs: Tensor) -> Tensor:
    """True where a position may attend: to itself and earlier positions in the same document."""
    document = (inputs == END_ID).cumsum(dim=1)
    same = document[:, :, None] == document[:, None, :]
    causal = torch.ones(
        inputs.size(1), inputs.size(1), dtype=torch.bool, device=inputs.device
    ).tril()
    return (same & causal)[:, None]


def make_batch(tokens: Tokens, rows: int, length: int) -> Batch:
    """Cut ``rows * length + 1`` tokens into a batch."""
    flat = torch.from_numpy(tokens.astype(np.int64))
    inputs = flat[:-1].view(rows, length)
    return Batch(inputs, flat[1:].view(rows, length), document_mask(inputs))


class PassReader:
    """An endless series of batches, pass after pass, that can be resumed where it stopped."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, seed: int, number: int = 0, position: int = 0
    ):
        self._corpus, self._tokenizer, self._seed = corpus, tokenizer, seed
        self.number, self.position = number, position
        self._tokens = mixed_pass(corpus, tokenizer, number, seed)

    def next(self, rows: int, length: int) -> Batch:
        """The next batch. An incomplete batch at the end of a pass is skipped."""
        if self.position + rows * length + 1 > len(self._tokens):
            self.number, self.position = self.number + 1, 0
            self._tokens = mixed_pass(self._corpus, self._tokenizer, self.number, self._seed)
        end = self.position + rows * length
        batch = make_batch(self._tokens[self.position : end + 1], rows, length)
        self.position = end
        return batch

    @property
    def passes(self) -> float:
        """How many passes have been read, including the fraction of the current pass."""
        return self.number + self.position / len(self._tokens)
