"""How likely it is that a text has a label: an estimate from one tree, and certain bounds.

A mark gives its label to all texts that begin with the tokens up to it, explored or not, so their
probability is known. A nearer mark overrides one farther up, and a later one an earlier one at the
same token. Texts without a mark have the label of the last rule that holds for them. If no later
text can change that, such as where a text contains a word, the rule also covers all that follows.

The texts are those of which a run knows something: of its tree, explored ones, those of other
seeds. What nobody has explored is `undecided`.

The weights of the texts with a label are its estimate. What is known bounds it: the probability of
the texts that certainly have the label is `low`, and `high` is that and all that is unexplored.

Several runs of one prompt with different seeds know together what one of them knows. Their mean is
the estimate, and as they are independent, it has a standard error. A single tree has none. A run
may hold the texts of the others (`RunState.repeats`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple, TypeAlias

from eab.analysis.run_comparison import mean
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.run import Path, RunState, Token, largest_first, log_prob_of
from eab.run.events import LabelRule

TokenIds: TypeAlias = tuple[int, ...]
NO_LABEL: Final = "(no label)"
# Where a label is decided: how many tokens of a leaf's text it takes, and the label, None for none
Decided: TypeAlias = tuple[int, str | None]


class KnownText(NamedTuple):
    """A text, or the first tokens of texts of which no more is known."""

    leaf: Path | None  # None if the tree does not have it
    tokens: Sequence[Token]
    text: str | None  # without control tokens and up to any stop string; None if it may go on
    cut: int  # how many bytes the stop string cut off
    weight: float  # in the run with its seed
    seed: int | None  # of the run that gave it; None for the run itself
    ids: tuple[int, ...]  # of its tokens

    @property
    def in_estimate(self) -> bool:
        """Whether it is one of the texts whose weights are the estimate of the run itself."""
        return self.leaf is not None and self.leaf.status in ("live", "finished")


def known_texts(run: RunState) -> Iterator[KnownText]:
    """The texts of the tree, also of pruned and given paths, and then all others."""
    for leaf in (path for path in run.paths if not path.children):
        text = None if leaf.finish_reason is None else run.text(leaf.id)
        weight = 0.0 if leaf.status == "pruned" else leaf.weight
        tokens = list(run.tokens(leaf.id))
        ids = tuple(token.id for token in tokens)
        yield KnownText(leaf, tokens, text, leaf.cut, weight, None, ids)
    for seed, texts in [(None, run.explored), *run.repeats.items()]:
        for each in texts:
            text = None if each.finish_reason == "unfinished" else each.text
            yield KnownText(None, each.tokens, text, each.cut, each.weight, seed, each.token_ids)


@dataclass(frozen=True, slots=True)
class Label:
    """How likely a label is, after temperature and filters, for texts of at most max_new_tokens.

    Attributes:
        estimate: The weight of the texts with the label, within the bounds.
        low: The probability is certainly not lower.
        high: The probability is certainly not higher.
        standard_error: Of the mean weight of several runs, before it is moved into the bounds; None
            for a single run.
    """

    name: str
    estimate: float
    low: float
    high: float
    standard_error: float | None = None

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.1%}"
        return f"{self.estimate:.1%}{error}, certainly between {self.low:.1%} and {self.high:.1%}"


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a run, or of several, in the order in which the rules name them."""

    labels: tuple[Label, ...]
    unlabelled: float  # the probability of texts that certainly have no label
    unexplored: float  # the probability of all of which nothing is known
    runs: int = 1  # of which the estimates are the mean
    # For a single run: path, index of its token that decides, and the label
    cover: tuple[tuple[int, int, str], ...] = ()

    def __getitem__(self, name: str) -> Label:
        found = next((each for each in self.labels if each.name == name), None)
        if found is None:
            names = ", ".join(quoted(each.name) for each in self.labels) or "none"
            raise ConfigError(f"there is no label {quoted(name)}; the run has: {names}")
        return found

    @property
    def winner(self) -> str | None:
        """The label that is certainly the most likely, NO_LABEL if having none is; None if
        undecided.
        """
        lows = [*(each.low for each in self.labels), self.unlabelled]
        names = [*(each.name for each in self.labels), NO_LABEL]
        first = certain_winner(lows, self.unexplored)
        return None if first is None else names[first]

    def __iter__(self) -> Iterator[Label]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)


def certain_winner(lows: Sequence[float], unexplored: float) -> int | None:
    """The place of the probability that is certainly the largest, whatever has the unexplored rest;
    None if that is undecided. `lows` are the lower bounds; what has none yet has 0.
    """
    order = largest_first(lows)
    first, second = [*(lows[place] for place in order[:2]), 0.0, 0.0][:2]
    return order[0] if first > 0 and first >= second + unexplored else None


# Called with a run and a text of it
LabelOf: TypeAlias = Callable[[RunState, KnownText], Decided | None]


@dataclass(frozen=True, slots=True)
class Labelling:
    """How the texts of a run get their labels."""

    names: tuple[str, ...]
    label_of: LabelOf
    marks: tuple[LabelRule, ...] = ()

    def decisions(self, run: RunState) -> Iterator["Decision"]:
        """What decides the label of each text that the run knows."""
        marked = _marked(run, self.marks)
        for text in known_texts(run):
            marks = _marks_of(text, marked)
            decided = self.label_of(run, text)
            if decided is not None and marks and marks[0][0] <= decided[0]:
                decided = None  # a mark before it overrides it
            yield Decision(text, marks, decided)


class Decision(NamedTuple):
    """A text, and what decides its label."""

    text: KnownText
    marks: list[tuple[int, str]]  # the marks of its text, the nearest one last
    decided: Decided | None  # where a rule decides it, unless a mark does so before

    @property
    def last(self) -> Decided | None:
        """What its text is labelled by."""
        return self.marks[-1] if self.marks else self.decided


def labels_of(runs: Sequence[RunState], labelling: Labelling) -> Labels:
    """The labels of one run, or of several that differ only in their seeds."""
    cells = _Cells()
    by_run = [each for run in runs for each in _weights(run, labelling, cells)]
    lows = cells.probabilities()
    unexplored = max(0.0, 1.0 - math.fsum(lows.values()))
    found = [*dict.fromkeys([*labelling.names, *(label for label in lows if label)]), None]
    weights = [[each[label] for each in by_run] for label in found]
    means = [math.fsum(each) / len(by_run) for each in weights]
    estimates = within_bounds([lows[label] for label in found], means, unexplored)
    return Labels(
        tuple(
            Label(
                label,
                estimate,
                lows[label],
                min(1.0, lows[label] + unexplored),
                mean(dict(enumerate(of_label))).error,
            )
            for label, estimate, of_label in zip(found, estimates, weights, strict=True)
            if label is not None
        ),
        lows[None],
        unexplored,
        len(by_run),
        tuple((*place_of(runs[0], *place), name) for *place, name in cells.places)
        if len(runs) == 1
        else (),
    )


def _weights(
    run: RunState, labelling: Labelling, cells: "_Cells"
) -> list[Mapping[str | None, float]]:
    """The weight of the texts with each label, in the run and in each complete run that it holds;
    adds what this run knows to the cells.
    """
    weights: defaultdict[int | None, defaultdict[str | None, float]]
    weights = defaultdict(lambda: defaultdict(float))
    for each in labelling.decisions(run):
        for decided in [*filter(None, [each.decided]), *each.marks]:
            cells.add(each.text, decided)
        if each.last is not None:
            weights[each.text.seed][each.last[1]] += each.text.weight
    return [weights[seed] for seed in (None, *run.complete_repeats)]


def within_bounds(
    lows: Sequence[float], weights: Sequence[float], unexplored: float
) -> list[float]:
    """Weights moved into their bounds, of which `lows` are the lower ones, so that together they
    leave no more than all unseen probability.
    """
    unseen = [
        min(max(0.0, weight - low), unexplored) for low, weight in zip(lows, weights, strict=True)
    ]
    scale = unexplored / max(unexplored, math.fsum(unseen)) if unexplored else 0.0
    return [low + part * scale for low, part in zip(lows, unseen, strict=True)]


def _marked(run: RunState, marks: Sequence[LabelRule]) -> dict[TokenIds, str]:
    """The labels of the marks, by the tokens up to them; other paths may have the same tokens."""
    found: dict[TokenIds, str] = {}
    for mark in marks:
        tokens = list(run.tokens(mark.path))[: run.tokens_before(mark.path) + mark.token + 1]
        found[tuple(token.id for token in tokens)] = mark.label
    return found


def _marks_of(text: KnownText, marked: Mapping[TokenIds, str]) -> list[tuple[int, str]]:
    """The marks of a text: how many tokens each needs, and its label; the nearest one last."""
    ids = text.ids if marked else ()
    counts = sorted({len(each) for each in marked})
    return [(count, marked[ids[:count]]) for count in counts if ids[:count] in marked]


class _Cells:
    """Sets of texts that begin with the same tokens, each with a label; inner ones override."""

    def __init__(self) -> None:
        # label, log-probability (None in an imported run that does not say it)
        self._cells: dict[TokenIds, tuple[str | None, float | None]] = {}
        self.places: list[tuple[int, int, str]] = []  # leaf, number of tokens, label

    def add(self, text: KnownText, decided: Decided) -> None:
        count, label = decided
        ids = text.ids[:count]
        if label and (ids not in self._cells or self._cells[ids][0] != label):
            self.places += [] if text.leaf is None else [(text.leaf.id, count, label)]
        self._cells[ids] = label, log_prob_of(text.tokens[:count])

    def probabilities(self) -> Mapping[str | None, float]:
        """The probability of each label: of its cells without the cells inside them."""
        parts: defaultdict[str | None, list[float]] = defaultdict(list)
        outer: list[TokenIds] = []
        for ids in sorted(self._cells):
            while outer and ids[: len(outer[-1])] != outer[-1]:
                outer.pop()
            label, log_prob = self._cells[ids]
            around, most = self._cells[outer[-1]] if outer else (label, None)
            if log_prob is None:  # perhaps all of what is around it
                parts[around].append(
                    -math.exp(most) if most is not None and around != label else 0.0
                )
            else:
                parts[label].append(math.exp(log_prob))
                parts[around].append(-math.exp(log_prob) if outer else 0.0)
            outer.append(ids)
        found = {label: min(1.0, max(0.0, math.fsum(part))) for label, part in parts.items()}
        return defaultdict(float, found)


def place_of(run: RunState, leaf: int, count: int) -> tuple[int, int]:
    """The path, and the index in it, of token number `count` of a leaf's text."""
    for path in run.lineage(leaf):
        length = len(run.paths[path].tokens)
        if count <= length:
            return path, max(0, count - 1)
        count -= length
    return leaf, length - 1


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first tokens of texts of which nothing is known."""

    tokens: tuple[int, ...]  # ids, from the root
    probability: float


def undecided(run: RunState, labelling: Labelling, most: int) -> list[Beginning]:
    """The most probable beginnings, at most `most`, of texts that have no label and that nobody has
    explored. Only the candidates that the run lists can be named; the rest is missing.
    """
    known = _Known()
    for text, marks, decided in labelling.decisions(run):
        ends = [len(text.tokens), *(count for count, _ in [*marks, *filter(None, [decided])])]
        # such as where the path limit dropped it
        is_open = text.text is None and not (marks or decided)
        known.add(text.tokens, min(ends), is_open)
    return known.left(most)


class _Known:
    """The known texts as a tree of nodes, each a beginning; node 0 has no token."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}  # by node and the token after it
        self._texts: list[tuple[list[int], int]] = [([], 0)]  # of each node a text, and its tokens
        self._inner: set[int] = set()
        # Probabilities: of a token that may follow a node, and of a node of which no more is known
        self._candidates: dict[tuple[int, int], float] = {}
        self._open: dict[int, float] = {}

    def add(self, tokens: Sequence[Token], end: int, is_open: bool) -> None:
        """Add a text. Other tokens may follow its first ones, up to number `end`."""
        node, probability, ids = 0, 1.0, [token.id for token in tokens]
        for count, token in enumerate(tokens):
            for candidate in token.candidates if count < end else ():
                share = probability * candidate.probability
                self._candidates[node, candidate.token] = share
            probability *= 0.0 if token.log_prob is None else math.exp(token.log_prob)
            self._inner.add(node)
            following = self._next.setdefault((node, token.id), len(self._texts))
            if following == len(self._texts):
                self._texts.append((ids, count + 1))
            node = following
        if is_open:
            self._open[node] = probability

    def left(self, most: int) -> list[Beginning]:
        """The most probable of what is not known."""
        left = [
            (probability, node, [token])
            for (node, token), probability in self._candidates.items()
            if probability > 0 and (node, token) not in self._next
        ]
        left += [
            (p, node, []) for node, p in self._open.items() if p > 0 and node not in self._inner
        ]
        chosen = nlargest(most, left, key=lambda each: each[0])
        return [
            Beginning((*self._texts[node][0][: self._texts[node][1]], *token), probability)
            for probability, node, token in chosen
        ]
