"""Recomputes freed memories of paths; a prefix that several texts share is read once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from eab.caches.base import ForwardBatch

Groups = list[list[int]]  # paths with the same text so far


class StateRecovery:
    """Serves the passes that read the texts again; until the last one, the cache is not usable.

    All texts are read side by side, so that they go through the model together.

    Args:
        read: For each path, a name for the memory of each token that it had read; two paths have
            the same name where they share it.
        prepare: Prepares the pass in which the first path of each group reads until `end`.
        whole: Whether the first pass reads all of the common prefix.
    """

    def __init__(
        self,
        read: Mapping[int, Sequence[int]],
        prepare: Callable[[Groups], ForwardBatch],
        whole: bool,
    ) -> None:
        self._read, self._prepare, self._whole = read, prepare, whole
        self.groups: Groups = [[*read]]
        self.end = 0  # the length up to which the texts are read after the pass
        self.rows_left = _distinct([*read.values()])

    def prepare(self, limit: int) -> ForwardBatch:
        """The batch of the next tokens, about `limit` of them."""
        start = self.end
        self.groups = [part for group in self.groups for part in self._parts(group, start)]
        chunk = max(1, limit // len(self.groups))
        longest = max(map(len, self._read.values()))
        last = longest if self._whole and not start else min(longest, start + chunk)
        self.end = start + 1
        while self.end < last and all(self._are_alike(group, self.end) for group in self.groups):
            self.end += 1
        self.rows_left -= (self.end - start) * len(self.groups)
        batch = self._prepare(self.groups)
        return replace(batch, logits_indices=batch.logits_indices[:1])  # not used

    def _parts(self, group: Sequence[int], at: int) -> Groups:
        parts: dict[int, list[int]] = {}
        for path in group:
            if at < len(self._read[path]):
                parts.setdefault(self._read[path][at], []).append(path)
        return [*parts.values()]

    def _are_alike(self, group: Sequence[int], at: int) -> bool:
        return [*map(len, self._parts(group, at))] == [len(group)]


def _distinct(texts: Sequence[Sequence[int]]) -> int:
    """How many tokens texts have, counting those of a common prefix once."""
    ordered = sorted(map(list, texts))
    shared = 0
    for text, following in pairwise(ordered):
        pairs = enumerate(zip(text, following, strict=False))
        differ = (at for at, (first, second) in pairs if first != second)
        shared += next(differ, min(len(text), len(following)))
    return sum(map(len, ordered)) - shared
