"""How likely it is that a text has a label: an estimate from one tree, and certain bounds.

A mark gives its label to all texts that begin with the tokens up to it, explored or not, so their
probability is known. A nearer mark overrides one farther up, and a later one an earlier one at the
same token. Texts without a mark have the label of the last rule that holds for them. If no later
text can change that, such as where a text contains a word, the rule also covers all that follows.

The weights of the texts with a label are its estimate. What is known bounds it: the probability of
the texts that certainly have the label is `low`, and `high` is that and all that is unexplored.

Several runs of one prompt with different seeds know together what one of them knows. Their mean is
the estimate, and as they are independent, it has a standard error. A single tree has none. A run
may hold the texts of the others (`RunState.repeats`).
"""

import bisect
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from eab import token_text
from eab.analysis import answer_parts
from eab.analysis.answer_parts import Searcher
from eab.analysis.answers import within_bounds
from eab.errors import ConfigError
from eab.events import LabelRule
from eab.formatting import quoted
from eab.run import Path, RunState, Token, log_prob_of

# A text that labelled texts contain, a pattern found in them, or a function of a complete text
Rule: TypeAlias = str | re.Pattern[str] | Callable[[str], bool]

TokenIds: TypeAlias = tuple[int, ...]
# Where a label is decided: how many tokens of a leaf's text it takes, and the label, None for none
Decided: TypeAlias = tuple[int, str | None]


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

    def __iter__(self) -> Iterator[Label]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)


# Called with a run, the tokens of a text, and the text, None while it is not complete
LabelOf: TypeAlias = Callable[[RunState, Sequence[Token], str | None], Decided | None]


@dataclass(frozen=True, slots=True)
class Labelling:
    """How the texts of a run get their labels."""

    names: tuple[str, ...]
    label_of: LabelOf
    marks: tuple[LabelRule, ...] = ()

    def decisions(self, run: RunState) -> Iterator["DecidedLeaf"]:
        """The texts of the tree, with those of pruned paths, and explored ones."""
        marked = _marked(run, self.marks)
        for leaf, tokens, text, weights in _texts(run):
            marks = _marks_of(tokens, marked)
            decided = self.label_of(run, tokens, text)
            if decided is not None and marks and marks[0][0] <= decided[0]:
                decided = None  # a mark before it overrides it
            yield DecidedLeaf(leaf, tokens, weights, text is not None, marks, decided)


def _texts(
    run: RunState,
) -> Iterator[tuple[Path | None, Sequence[Token], str | None, "SeedWeight"]]:
    """Of each text its leaf, None if the tree does not have it, its tokens, it as a whole, if it is
    complete, and its weight.
    """
    for leaf in (path for path in run.paths if not path.children):
        text = None if leaf.finish_reason is None else run.text(leaf.id)
        weight = 0.0 if leaf.status == "pruned" else leaf.weight
        yield leaf, list(run.tokens(leaf.id)), text, SeedWeight(None, weight)
    for seed, texts in [(None, run.explored), *run.repeats.items()]:
        for each in texts:
            text = None if each.finish_reason == "unfinished" else each.text
            yield None, each.tokens, text, SeedWeight(seed, each.weight)


class SeedWeight(NamedTuple):
    """The weight of a text in the run with this seed, None for the run itself."""

    seed: int | None
    weight: float


class DecidedLeaf(NamedTuple):
    """The leaf of a text, and what decides its label."""

    leaf: Path | None  # None if the tree does not have the text
    tokens: Sequence[Token]
    weight: SeedWeight
    is_complete: bool
    marks: list[tuple[int, str]]  # the marks of its text, the nearest one last
    decided: Decided | None  # where a rule decides it, unless a mark does so before

    @property
    def last(self) -> Decided | None:
        """What its text is labelled by."""
        return self.marks[-1] if self.marks else self.decided


def labelled(run: RunState, rules: Sequence[LabelRule]) -> Labels:
    """The labels of a run by marks and rules such as those in its file; later ones override.

    Raises:
        ConfigError: A pattern is wrong or takes too long.
    """
    return labels_of([run], recorded(rules))


def recorded(rules: Sequence[LabelRule]) -> "Labelling":
    """How marks and rules such as those in a run's file label texts, for the next seconds.

    Raises:
        ConfigError: A pattern is wrong; or, later, takes too long.
    """
    marks = tuple(rule for rule in rules if rule.kind == "mark")
    end = time.monotonic() + answer_parts.MOST_SECONDS  # for all patterns: a file may have many
    others = [(rule.label, _holds_as_recorded(rule, end)) for rule in rules if rule.kind != "mark"]
    names = tuple(dict.fromkeys(rule.label for rule in rules))
    return Labelling(names, _by_rules(others), marks)


def labelled_by(
    runs: Sequence[RunState], rules: Mapping[str, Rule] | Callable[[str], Any]
) -> Labels:
    """The labels by rules of a program.

    Args:
        runs: One run, or several that differ only in their seeds.
        rules: For each label a text that such texts contain, a pattern that is found in them, or a
            function that is given a complete text and returns whether it has the label; later ones
            override earlier ones. Or a function that returns the label of a text, None for none.

    Raises:
        ConfigError: A rule is none of these, or a function returns something else.
    """
    return labels_of(runs, by_program(rules))


def by_program(rules: Mapping[str, Rule] | Callable[[str], Any]) -> "Labelling":
    """How the rules of a program label texts; see `labelled_by`."""
    if callable(rules):
        return Labelling((), _by_function(rules))
    if not isinstance(rules, Mapping) or not rules:
        raise ConfigError(
            f"the rules are {quoted(rules)}; give a dictionary such as {{'Paris': 'Paris'}}, or a "
            "function that returns the label of a text"
        )
    holds = [(_checked_name(label), _holds(rule)) for label, rule in rules.items()]
    return Labelling(tuple(dict.fromkeys(label for label, _ in holds)), _by_rules(holds))


def probability(run: RunState, of: Rule) -> Label:
    """How likely it is that a text contains a text or a pattern, or that a function is true of it.

    Raises:
        ConfigError: It is none of these, or the function returns no bool.
    """
    name = of if isinstance(of, str) else getattr(of, "__name__", str(of))
    return labelled_by([run], {name or " ": of}).labels[0]


def is_json(text: str) -> bool:
    """Whether the text is valid JSON, and nothing else but white space around it."""
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return False
    return True


def _checked_name(label: object) -> str:
    if not isinstance(label, str) or not label:
        raise ConfigError(f"a label is {quoted(label)}; give a text of at least one character")
    return label


# ---- rules


@dataclass(frozen=True, slots=True)
class _Holds:
    """Whether a rule holds for a text."""

    of: Callable[[str], bool]
    # Whether the answer yes stays, however the text goes on
    stays: bool = False


def _holds_as_recorded(rule: LabelRule, end: float) -> _Holds:
    if rule.kind == "json":
        return _Holds(is_json)
    if rule.kind == "pattern":
        return _is_found(Searcher(rule.text, end=end))
    wanted = _lower(rule.text)
    return _Holds(lambda text: wanted in _lower(text), stays=True)


def _holds(rule: Rule) -> _Holds:
    if isinstance(rule, str) and rule:
        return _Holds(lambda text: rule in text, stays=True)
    if isinstance(rule, re.Pattern):
        return _is_found(Searcher.of(rule))
    if callable(rule):
        return _Holds(lambda text: _checked_bool(rule(text)))
    raise ConfigError(
        f"the property is {quoted(rule)}; give a text that the model might write, a pattern, "
        "or a function of a text"
    )


def _is_found(pattern: Searcher) -> _Holds:
    return _Holds(lambda text: pattern.search(text) is not None, stays=not pattern.looks_around)


def _lower(text: str) -> str:
    """Each character by itself: the lower case of a text must not depend on what follows it."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


def _checked_bool(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"the property returned {quoted(value)}; return True or False")
    return bool(value)


def _by_rules(rules: Sequence[tuple[str, _Holds]]) -> LabelOf:
    def label_of(run: RunState, tokens: Sequence[Token], whole: str | None) -> Decided | None:
        # What may still become part of a stop string is cut off with it.
        margin = max((len(stop) for stop in run.started.config.stop), default=1) - 1
        is_complete = whole is not None
        text = _certain(tokens, margin) if whole is None else whole
        for number, (label, holds) in enumerate(reversed(rules)):
            if not (is_complete or holds.stays) or not holds.of(text):
                continue
            if number or not holds.stays:  # a rule that overrides this one may hold later
                return (len(tokens), label) if is_complete else None
            needed = bisect.bisect_left(
                range(len(tokens)),
                True,
                key=lambda count: holds.of(_certain(tokens[:count], margin)),
            )
            return needed, label
        return (len(tokens), None) if is_complete else None

    return label_of


def _certain(tokens: Sequence[Token], margin: int) -> str:
    """The part of an unfinished text that no later token changes."""
    text = token_text.exact(token.shown for token in tokens)
    return text[: max(0, len(text) - margin)].rstrip(_PARTS_OF_CHARACTERS)


_PARTS_OF_CHARACTERS: Final = "".join(map(chr, range(0xDC80, 0xDD00)))


def _by_function(function: Callable[[str], Any]) -> LabelOf:
    def label_of(_: RunState, tokens: Sequence[Token], whole: str | None) -> Decided | None:
        if whole is None:
            return None
        label = function(whole)
        return len(tokens), None if label is None else _checked_name(label)

    return label_of


# ---- probabilities


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
                _standard_error(of_label),
            )
            for label, estimate, of_label in zip(found, estimates, weights, strict=True)
            if label is not None
        ),
        lows[None],
        unexplored,
        len(by_run),
        tuple(_place(runs[0], *place) for place in cells.places) if len(runs) == 1 else (),
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
            cells.add(each.tokens, each.leaf, decided)
        if each.last is not None:
            weights[each.weight.seed][each.last[1]] += each.weight.weight
    return [weights[seed] for seed in (None, *run.complete_repeats)]


def _standard_error(weights: Sequence[float]) -> float | None:
    if len(weights) < 2:
        return None
    return float(np.std(weights, ddof=1)) / math.sqrt(len(weights))


def _marked(run: RunState, marks: Sequence[LabelRule]) -> dict[TokenIds, str]:
    """The labels of the marks, by the tokens up to them; other paths may have the same tokens."""
    found: dict[TokenIds, str] = {}
    for mark in marks:
        tokens = list(run.tokens(mark.path))[: run.tokens_before(mark.path) + mark.token + 1]
        found[tuple(token.id for token in tokens)] = mark.label
    return found


def _marks_of(tokens: Sequence[Token], marked: Mapping[TokenIds, str]) -> list[tuple[int, str]]:
    """The marks of a text: how many tokens each needs, and its label; the nearest one last."""
    ids = tuple(token.id for token in tokens)
    counts = sorted({len(each) for each in marked})
    return [(count, marked[ids[:count]]) for count in counts if ids[:count] in marked]


class _Cells:
    """Sets of texts that begin with the same tokens, each with a label; inner ones override."""

    def __init__(self) -> None:
        # label, log-probability (None in an imported run that does not say it)
        self._cells: dict[TokenIds, tuple[str | None, float | None]] = {}
        self.places: list[tuple[int, int, str]] = []  # leaf, number of tokens, label

    def add(self, tokens: Sequence[Token], leaf: Path | None, decided: Decided) -> None:
        count, label = decided
        ids = tuple(token.id for token in tokens[:count])
        if label and (ids not in self._cells or self._cells[ids][0] != label):
            self.places += [] if leaf is None else [(leaf.id, count, label)]
        self._cells[ids] = label, log_prob_of(tokens[:count])

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


def _place(run: RunState, leaf: int, count: int, label: str) -> tuple[int, int, str]:
    """The path and the index in it of the token with which a label is decided."""
    for path in run.lineage(leaf):
        length = len(run.paths[path].tokens)
        if count <= length:
            return path, max(0, count - 1), label
        count -= length
    return leaf, length - 1, label
