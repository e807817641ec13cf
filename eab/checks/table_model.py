"""A language model that is a table: a Markov chain with known probabilities and a real tree cache.

Its forward pass stores token ids as values in the cache and attends with equal scores. So `seen`
holds, for each forward pass, the mean of the token ids that each token with kept logits could see.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.branching.presets import START
from eab.caches.base import ForwardBatch
from eab.caches.shape import KVShape
from eab.config import BranchingConfig
from eab.events import ModelCard
from eab.events.chat import Prompt
from eab.models.base import LanguageModel

# (V, V): p(next | last); or (T, V, V), by the position of the next token
Table = NDArray[np.float64]


class TableModel(LanguageModel):
    """A LanguageModel (see eab.models.base). The prompt "0 2 1" stands for these token ids, and the
    last one starts the chain.
    """

    def __init__(self, table: Table, stop_ids: Sequence[int] = (), context: int = 4096) -> None:
        self.table = np.asarray(table, dtype=np.float64)
        size = self.table.shape[-1]
        with np.errstate(divide="ignore"):
            self._logits = torch.from_numpy(np.log(self.table))
        self.kv_shape = KVShape(1, 1, 1, torch.float64, torch.device("cpu"))
        self.context, self.stop_ids = context, frozenset(stop_ids)
        self.card = ModelCard(
            "table", "markov", size, 1, 1, 1, "float64", "cpu", self.kv_shape.row_bytes
        )
        self.seen: list[list[float]] = []
        self.prompt_length = 1

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """See LanguageModel.forward."""
        logits = []
        for batch in batches:
            values = batch.ids.to(torch.float64).view(1, 1, -1, 1)
            means = batch.cache.attend(
                0, torch.zeros_like(values), torch.zeros_like(values), values, scale=1.0
            )
            self.seen.append(means[0, batch.logits_indices, 0, 0].tolist())
            last = batch.ids[batch.logits_indices]
            step = batch.positions[batch.logits_indices] - self.prompt_length + 1
            logits.append(
                self._logits[last]
                if self._logits.dim() == 2
                else self._logits[step.clamp(min=0), last]
            )
        return torch.cat(logits)

    def encode(
        self, prompt: Prompt, config: BranchingConfig = START, parse_special: bool = False
    ) -> tuple[int, ...]:
        """See LanguageModel.encode."""
        tokens = tuple(int(word) for word in str(prompt).split())
        self.prompt_length = len(tokens)
        return tokens

    def encode_following(self, text: str) -> tuple[int, ...]:
        """See LanguageModel.encode_following."""
        return tuple(int(word) for word in text.split())

    def text(self, token: int) -> str:
        """See LanguageModel.text."""
        return f" {token}"

    def is_special(self, token: int) -> bool:
        """See LanguageModel.is_special."""
        return token in self.stop_ids

    def next(self, last: int, step: int) -> NDArray[np.float64]:
        """The row p(token of this step | last token)."""
        row: NDArray[np.float64] = (
            self.table[last] if self.table.ndim == 2 else self.table[step, last]
        )
        return row

    def all_texts(self, first: int, length: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """All texts of at most `length` tokens, with their exact probabilities."""
        open_texts: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        for step in range(length):
            grown = [
                ((*text, token), mass * p)
                for text, mass in open_texts
                for token, p in enumerate(self.next(text[-1] if text else first, step))
                if p > 0
            ]
            yield from ((text, mass) for text, mass in grown if text[-1] in self.stop_ids)
            open_texts = [(text, mass) for text, mass in grown if text[-1] not in self.stop_ids]
        yield from open_texts


def random_table(
    seed: int, size: int, concentration: float = 0.6, steps: int | None = None
) -> Table:
    """A table whose rows are drawn from a Dirichlet distribution: some sharp, some flat."""
    shape = (size,) if steps is None else (steps, size)
    return np.random.default_rng(seed).dirichlet(np.full(size, concentration), size=shape)
