"""Guesses without a model: what followed the same tokens before.

Prompt lookup (Saxena, 2023, github.com/apoorvumang/prompt-lookup-decoding) looks in the path's own
text; sibling lookup also in the other paths of the tree, since siblings repeat each other.
"""

from collections.abc import Sequence
from typing import Final

from eab.speculation.drafter import DraftRequest

LONGEST, SHORTEST = 3, 2  # tokens that must be the same
_NGrams = dict[
    tuple[int, ...], tuple[list[int], int]
]  # what came last after an n-gram: a text, and where in it


class NgramLookup:
    """See Drafter. siblings: look in all paths of the run, not only in the path's own text."""

    def __init__(self, siblings: bool) -> None:
        self._siblings: Final = siblings
        self._ngrams: dict[int, _NGrams] = {0: {}}
        self._texts: dict[int, list[int]] = {0: []}

    def propose(self, contexts: Sequence[DraftRequest]) -> list[list[int]]:
        """See Drafter.propose. All paths are looked at before any of them asks."""
        for context in contexts:
            self._learn(context)
        return [self._follow(context) for context in contexts]

    def _learn(self, context: DraftRequest) -> None:
        text, ngrams = self._texts[context.path], self._ngrams[context.path]
        for token in context.text[len(text) :]:
            for size in range(SHORTEST, LONGEST + 1):
                if len(text) >= size:
                    ngrams[tuple(text[-size:])] = (text, len(text))
            text.append(token)

    def _follow(self, context: DraftRequest) -> list[int]:
        """The tokens after the latest place that ended like this text, by the longest n-gram that
        has one.
        """
        ngrams = self._ngrams[context.path]
        for size in range(LONGEST, SHORTEST - 1, -1):
            found = ngrams.get(tuple(context.text[-size:]))
            if found is not None:
                return self._copied(*found, context)
        return []

    def _copied(self, text: list[int], place: int, context: DraftRequest) -> list[int]:
        """What follows that place; if it is the path's own end that is copied, the copy goes on
        with itself.
        """
        guess = text[place : place + context.most]
        period = len(guess)
        if text is self._texts[context.path]:
            guess += [guess[index % period] for index in range(period, context.most)]
        return guess

    def fork(self, path: int, children: Sequence[int]) -> None:
        """See Drafter.fork."""
        ngrams, text = self._ngrams.pop(path), self._texts.pop(path)
        for child in children:
            self._ngrams[child] = ngrams if self._siblings else dict(ngrams)
            self._texts[child] = list(text)

    def release(self, path: int) -> None:
        """See Drafter.release. What it wrote may still be found."""
        del self._ngrams[path], self._texts[path]
