"""The KV cache of a model on a server: its texts, and the bookkeeping of their blocks.

The server holds K and V. It finds the prefix of a text in its prefix cache by the tokens alone, so
a fork sends nothing. Rows and bytes are computed from the texts; the server measures how many
tokens it did not have to compute.

A server that runs ahead answers more than the next step needs. The rest of an answer is kept: if a
path, or a child of it, continues as the server did, the next pass asks nothing about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from msgspec import structs

from eab.engine.caches.base import ForwardBatch, KVCache, logits_indices
from eab.engine.caches.ledger import BlockLedger, check_limit
from eab.engine.caches.shape import KVShape, ServerBlocks
from eab.run.events import KVUsage

UNKNOWN: Final = -1  # a token that the server will choose


@dataclass(slots=True)
class ServerAnswer:
    """How the server continues one text."""

    length: int
    chosen: Sequence[int]  # the tokens that the server chose by itself after the text
    # The most likely tokens and their ln p: after the text, and after each of `chosen`
    tops: Sequence[Mapping[int, float]]
    followed: int = 0  # how many of `chosen` some path has also taken

    def follow(self, text: Sequence[int]) -> int | None:
        """Note how far a longer text continues as the server did; returns the index of `tops` that
        belongs to this text, None if it departs from `chosen`.
        """
        new, same = text[self.length :], 0
        while same < min(len(new), len(self.chosen)) and new[same] == self.chosen[same]:
            same += 1
        self.followed = max(self.followed, same)
        return same if same == len(new) else None


@dataclass(slots=True)
class ServerQuestion:
    """What a pass asks about one path."""

    path: int
    tokens: list[int]
    known: int  # how many of the last tokens need a prediction after them
    ahead: int  # how many tokens the server must choose after them, each with a prediction
    answer: ServerAnswer | None = None  # set in advance if an earlier one reaches far enough
    at: int = 0  # the index of the answer's `tops` after `tokens`

    @property
    def chosen(self) -> Sequence[int]:
        """The tokens that the server chose by itself: `ahead` of them, or fewer."""
        return self.answer.chosen[self.at : self.at + self.ahead] if self.answer else ()


class ServerCache(KVCache):
    """The texts and blocks of one run on a server."""

    def __init__(
        self, shape: KVShape, blocks: ServerBlocks, byte_limit: int, top_k: int = 1
    ) -> None:
        self._books = BlockLedger(blocks.size, shape.row_bytes, blocks.shared)
        self._row_bytes, self._byte_limit = shape.row_bytes, byte_limit
        self._texts: dict[int, list[int]] = {0: []}
        self._answers: dict[int, ServerAnswer] = {}  # the latest one about each path
        self._sent = self._cached = 0
        self.top_k = top_k  # how many of the most likely tokens the server must return
        self.questions: list[ServerQuestion] = []  # of the prepared batch, path after path
        self.ahead = 0  # how many tokens the server must choose by itself in the prepared batch
        # For each path for which the batch checks tokens that the server chose: how many are
        # verified, and how many of these accepted
        self.drafts: list[tuple[int, int]] = []

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """New tokens may end in UNKNOWN ones, which the server chooses. The batch holds the tokens
        of the paths that the server must be asked about.
        """
        self._check_room(paths, tokens)
        keep = logits_to_keep or [1] * len(tokens)
        ids: list[int] = []
        positions: list[int] = []
        self.questions, self.drafts = [], []
        for path, new, kept in zip(paths, tokens, keep, strict=True):
            start, ahead = self._books.length(path), list(new).count(UNKNOWN)
            self._books.append(path, len(new))
            self._texts[path] = [*self._texts[path], *new[: len(new) - ahead]]
            question = self._question(path, kept - ahead, ahead)
            self.questions.append(question)
            if question.answer is None:
                ids += new
                positions += range(start, start + len(new))
        self.ahead = ids.count(UNKNOWN)
        return ForwardBatch(
            cache=self,
            ids=torch.tensor(ids, dtype=torch.int64),
            positions=torch.tensor(positions, dtype=torch.int64),
            logits_indices=torch.tensor(logits_indices(list(map(len, tokens)), keep)),
            growths=(),
        )

    def _question(self, path: int, known: int, ahead: int) -> ServerQuestion:
        """The question about a path, with its answer if the latest one reaches far enough."""
        text, answer = self._texts[path], self._answers.get(path)
        if answer is None:
            return ServerQuestion(path, text, known, ahead)
        before, at = answer.followed, answer.follow(text)
        accepted = answer.followed - before
        rejected = at is None and answer.followed < len(answer.chosen)
        if accepted or rejected:
            self.drafts.append((accepted + rejected, accepted))
        if at is None:
            del self._answers[path]
            return ServerQuestion(path, text, known, ahead)
        return ServerQuestion(path, text, known, ahead, answer, at)

    def _check_room(self, paths: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        missing = map(self._books.blocks_missing, paths, map(len, tokens))
        blocks = self._books.num_blocks + sum(missing)
        needed = blocks * self._books.block_size * self._row_bytes
        check_limit(needed, self._byte_limit, what="the server's blocks would hold")

    def note_answers(self, answers: Sequence[ServerAnswer], sent: int, cached: int) -> None:
        """Note the answers to `sent` tokens, of which the server did not compute `cached`."""
        new = iter(answers)
        for question in self.questions:
            if question.answer is None:
                question.answer = next(new)
                if question.answer.chosen:
                    self._answers[question.path] = question.answer
            self._texts[question.path] = [*question.tokens, *question.chosen]
        self._sent += sent
        self._cached += cached

    def run_ahead(self, path: int) -> list[int]:
        """The tokens that the server chose by itself after this path in the latest pass."""
        return next(list(question.chosen) for question in self.questions if question.path == path)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Nothing is sent."""
        self._books.fork(path, children)
        text = self._texts.pop(path)
        self._texts |= {child: text for child in children}  # never changed in place
        if answer := self._answers.pop(path, None):
            self._answers |= dict.fromkeys(children, answer)

    def release(self, path: int) -> None:
        """Nothing is sent; the server evicts the text when it needs the room."""
        self._books.release(path)
        del self._texts[path]
        self._answers.pop(path, None)

    def trim(self, path: int, length: int) -> None:
        self._books.trim(path, length)
        self._texts[path] = self._texts[path][:length]

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Nothing is copied: the server recomputes what the ledger would copy."""
        return structs.replace(
            self._books.usage(paths),
            bytes_copied=0,
            block_size=self._books.block_size,
            tokens_sent=self._sent,
            tokens_cached=self._cached,
        )
