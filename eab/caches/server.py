"""The KV cache of a model on a server: its texts, and books of the blocks that hold their rows.

The server has K and V. It finds the beginning of a text in its prefix cache by the tokens alone, so
a fork sends nothing. Rows and bytes are computed from the texts; how many tokens the server did not
have to compute is measured by the server.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

import torch
from torch import Tensor

from eab.caches.base import ForwardBatch, logits_indices
from eab.caches.blocks import BlockLedger
from eab.caches.ledger import check_limit
from eab.caches.shape import KVShape, ServerBlocks
from eab.events import Growth, KVUsage

UNKNOWN: Final = -1  # a token that the server will choose


@dataclass(slots=True)
class Question:
    """What a pass asks about one path.

    Attributes:
        path: The path.
        tokens: All of its known tokens.
        known: After how many of the last of them a prediction is wanted.
        ahead: How many tokens the server shall choose by itself after them; a prediction is wanted
            after each.
        chosen: Those that it chose.
    """

    path: int
    tokens: list[int]
    known: int
    ahead: int
    chosen: list[int] = field(default_factory=list)


class ServerCache:
    """See KVCache.

    Attributes:
        questions: What the prepared batch asks, path after path.
    """

    def __init__(self, shape: KVShape, blocks: ServerBlocks, byte_limit: int) -> None:
        self._books = BlockLedger(blocks.size, shape.row_bytes, blocks.shared)
        self._row_bytes, self._byte_limit = shape.row_bytes, byte_limit
        self._texts: dict[int, list[int]] = {0: []}
        self._sent = self._cached = 0
        self.questions: list[Question] = []

    def reserve(self, rows: int, steps: int | None) -> Growth | None:
        """See KVCache.reserve: the server allocates as it likes."""
        return None

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """See KVCache.prepare. New tokens may end in UNKNOWN ones, which the server chooses."""
        self._check_room(paths, tokens)
        counts = [len(new) for new in tokens]
        keep = logits_to_keep or [1] * len(counts)
        starts = [self._books.length(path) for path in paths]
        self.questions = []
        for path, new, kept in zip(paths, tokens, keep, strict=True):
            known = [token for token in new if token != UNKNOWN]
            ahead = len(new) - len(known)
            self._texts[path] = [*self._texts[path], *known]
            self._books.append(path, len(new))
            self.questions.append(Question(path, self._texts[path], kept - ahead, ahead))
        return ForwardBatch(
            cache=self,
            ids=torch.tensor([token for new in tokens for token in new], dtype=torch.int64),
            positions=torch.tensor(
                [
                    start + index
                    for start, count in zip(starts, counts, strict=True)
                    for index in range(count)
                ]
            ),
            logits_indices=torch.tensor(logits_indices(counts, keep)),
            growths=(),
        )

    def _check_room(self, paths: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        size = self._books.block_size
        blocks = self._books.num_blocks
        for path, new in zip(paths, tokens, strict=True):
            after = -(-(self._books.length(path) + len(new)) // size)
            blocks += after - len(self._books.block_table(path))
        check_limit(
            blocks * size * self._row_bytes, self._byte_limit, what="the server's blocks would hold"
        )

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> NoReturn:
        """Never called: a server computes its attention itself."""
        raise NotImplementedError("K and V are on a server")

    def note_answer(self, chosen: Sequence[Sequence[int]], sent: int, cached: int) -> None:
        """Note what the server answered.

        Args:
            chosen: The tokens that it chose by itself, for each question.
            sent: How many tokens it got.
            cached: How many of them it did not have to compute.
        """
        for question, tokens in zip(self.questions, chosen, strict=True):
            question.chosen = list(tokens)
            self._texts[question.path] = [*question.tokens, *tokens]
        self._sent += sent
        self._cached += cached

    def run_ahead(self, path: int) -> list[int]:
        """The tokens that the server chose by itself after this path in the latest pass."""
        return next(list(one.chosen) for one in self.questions if one.path == path)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """See KVCache.fork: nothing is sent."""
        self._books.fork(path, children)
        text = self._texts.pop(path)
        self._texts |= {child: text for child in children}  # never changed in place

    def release(self, path: int) -> None:
        """See KVCache.release: the server forgets the text when it needs the room."""
        self._books.release(path)
        del self._texts[path]

    def trim(self, path: int, length: int) -> None:
        """See KVCache.trim."""
        self._books.trim(path, length)
        self._texts[path] = self._texts[path][:length]

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """See KVCache.usage. The server computes again what our books would copy."""
        return replace(
            self._books.usage(paths),
            bytes_copied=0,
            block_size=self._books.block_size,
            tokens_sent=self._sent,
            tokens_cached=self._cached,
        )
