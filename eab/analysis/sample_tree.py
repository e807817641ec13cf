"""Samples of one prompt as a tree of a limited number of texts.

Samples share what they have in common from the start, and equal samples are one text. If there are
more different texts than allowed, the tree goes deeper first where the most samples are. Where it
goes no deeper, one of the samples, drawn at random, stands for all that are there. So the weight of
each path is exactly the share of the samples that it stands for, and a weighted mean over the texts
is an unbiased estimate of the mean over all samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from random import Random
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Tokens: TypeAlias = NDArray[Any]  # the token ids of a sample, big-endian uint32
_Range: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class Branch:
    """A path of the tree; its samples, in sorted order, are those from `first` to before `last`."""

    first: int
    last: int
    start: int  # how many tokens precede it
    stop: int  # how many tokens precede its end
    samples: int  # how many samples it stands for
    children: list["Branch"] = field(default_factory=list)  # the heaviest first
    # Where other samples go on differently, but are not followed: how many tokens precede that
    # place, and their next tokens
    dropped_at: int = -1
    dropped: tuple[int, ...] = ()

    @property
    def shown(self) -> int:
        """A sample whose tokens it has."""
        return self.children[0].shown if self.children else self.first

    @property
    def leaves(self) -> int:
        """How many texts it has."""
        return sum(child.leaves for child in self.children) or 1


def sample_tree(texts: Sequence[Tokens], most: int, seed: int = 0) -> Branch:
    """The tree of these samples, at least one, with at most `most` (at least 2) leaves.

    Args:
        texts: Sorted; none is the beginning of another, but texts may be equal.
    """
    draw = Random(seed).randrange
    root = _branch(texts, (0, len(texts)), 0)
    waiting, leaves, number = [(-root.samples, 0, root)], 1, 0
    while waiting:
        *_, branch = heappop(waiting)
        groups = _groups(texts, branch)
        if len(groups) < 2:
            continue
        room = most - leaves + 1
        if room < 2:
            _follow_one(texts, branch, draw)
            continue
        fits = len(groups) <= room
        kept = groups if fits else groups[: room - 1]
        branch.children = [_branch(texts, group, branch.stop) for group in kept]
        if not fits:
            branch.children.append(_drawn(texts, branch, groups[room - 1 :], draw))
        leaves += len(branch.children) - 1
        for child in branch.children:
            number += 1
            heappush(waiting, (-child.samples, number, child))
    return root


def _branch(texts: Sequence[Tokens], samples: _Range, start: int) -> Branch:
    first, last = samples
    return Branch(first, last, start, _common(texts[first], texts[last - 1]), last - first)


def _common(one: Tokens, other: Tokens) -> int:
    """How many tokens two texts have in common from the start."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(differ[0]) if differ.size else shorter


def _groups(texts: Sequence[Tokens], branch: Branch) -> list[_Range]:
    """The samples of a branch by their next token, the most frequent token first."""
    if branch.stop == len(texts[branch.first]):
        return [(branch.first, branch.last)]  # all its samples end there
    members = groupby(range(branch.first, branch.last), lambda at: texts[at][branch.stop])
    groups = [[*at] for _, at in members]
    return [(at[0], at[-1] + 1) for at in sorted(groups, key=len, reverse=True)]


def _drawn(texts: Sequence[Tokens], branch: Branch, groups: Sequence[_Range], draw: Any) -> Branch:
    """A child of the branch: one of the samples of these groups, for all of them."""
    count = sum(last - first for first, last in groups)
    at = draw(count)
    for first, last in groups:
        if at < last - first:
            break
        at -= last - first
    chosen = first + at
    branch.dropped_at = branch.stop
    branch.dropped = tuple(
        int(texts[others[0]][branch.stop]) for others in groups if others != (first, last)
    )
    return Branch(chosen, chosen + 1, branch.stop, len(texts[chosen]), count)


def _follow_one(texts: Sequence[Tokens], branch: Branch, draw: Any) -> None:
    """Let the branch go on as one of its samples."""
    one = _drawn(texts, branch, _groups(texts, branch), draw)
    branch.first, branch.last, branch.stop = one.first, one.last, one.stop
