"""The parts of a run: tokens, paths, steps, and the samples that are read from the tree."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

from eab.run.events import Candidate, EntropyBounds, FinishReason, Growth, KVUsage, StepTimed

PathStatus = Literal["live", "forked", "finished", "pruned", "given"]  # given: see TextScored
_ROUNDING: Final = 1e-6  # relative; weights that differ by less differ in no way that matters


@dataclass(slots=True)
class Token:
    """One generated token: the fields of its NewToken (`id` is its `token`) and PathPrediction."""

    step: int
    id: int
    text: str
    special: bool
    log_prob: float | None
    entropy: float | None
    candidates: tuple[Candidate, ...]
    whole: EntropyBounds | None = None
    cut: int = 0  # how many characters at the end of `text` a stop string cut off

    @property
    def kept(self) -> str:
        """Its text up to any stop string."""
        return self.text[: len(self.text) - self.cut]

    @property
    def shown(self) -> str:
        """The text that it adds to its path."""
        return "" if self.special else self.kept


@dataclass(slots=True)
class Path:
    """A sequence of tokens without a fork."""

    id: int  # paths are numbered in order of birth
    parent: int  # id of the path that forked into it; -1 for the first path
    # (step, weight from that step on), from birth; pruning other paths changes the weight
    weights: list[tuple[int, float]]
    heir: bool  # whether this child would have followed without the fork
    touched: int  # step of its last change
    share: float = 1.0  # its share of its siblings' total weight at birth
    tokens: list[Token] = field(default_factory=list)
    children: tuple[int, ...] = ()
    status: PathStatus = "live"
    finish_reason: FinishReason | None = None
    reward: float | str | None = None  # see PathFinished
    # Steps at which the path limit pruned children of this path
    limited_steps: list[int] = field(default_factory=list)
    fork_entropy: float | None = None  # the entropy (nats) at which it forked
    # How many bytes a stop string cut off the end of its text, ancestors included. The ancestors'
    # tokens are shown nevertheless, because other paths share them.
    cut: int = 0
    # Whether it is the second part of a path, from the place on where a given text leaves it
    is_rest: bool = False

    @property
    def weight(self) -> float:
        """Its current weight, or its last weight if it has ended."""
        return self.weights[-1][1]

    @property
    def born(self) -> int:
        """The step of its first token."""
        return self.weights[0][0]


def split(paths: list[Path], stem: Path, kept: int) -> int:
    """Make the tokens of a path from number `kept` on a path of its own, the last one; return its
    id, or that of the path if no tokens are left. It is born after its children.
    """
    tokens = stem.tokens[kept:]
    if not tokens:
        return stem.id
    number, born = len(paths), tokens[0].step
    earlier = [change for change in stem.weights if change[0] <= born] or stem.weights[:1]
    later = [change for change in stem.weights if change[0] > born]
    rest = replace(stem, id=number, parent=stem.id, tokens=tokens, share=1.0, heir=True)
    rest.weights, rest.is_rest = [(born, earlier[-1][1]), *later], True
    rest.limited_steps = [at for at in stem.limited_steps if at >= born]
    paths.append(rest)
    for child in stem.children:
        paths[child].parent = number
    stem.tokens = [replace(token, cut=0) for token in stem.tokens[:kept]]
    stem.children, stem.weights = (number,), earlier
    stem.status = stem.status if stem.status == "given" else "forked"
    stem.finish_reason, stem.reward, stem.cut = None, None, 0
    stem.fork_entropy, stem.limited_steps = None, [at for at in stem.limited_steps if at < born]
    return number


@dataclass(slots=True)
class Step:
    """The measurements of one decode step; None where the events have not arrived yet."""

    step: int
    kv: KVUsage | None = None
    growth: Growth | None = None
    timing: StepTimed | None = None
    forward_passes: int = 0

    def add_timing(self, timing: StepTimed) -> None:
        """Add a forward pass; chunked prefill, or waiting for all paths, takes several."""
        self.forward_passes += 1
        if self.timing is not None:
            timing = StepTimed(
                self.step,
                self.timing.tokens + timing.tokens,
                self.timing.seconds + timing.seconds,
                self.timing.forward_seconds + timing.forward_seconds,
                self.timing.draft_seconds + timing.draft_seconds,
            )
        self.timing = timing


@dataclass(frozen=True, slots=True)
class Sample:
    """One leaf of the tree as a text.

    Attributes:
        text: The text without control tokens, up to any stop string.
        tokens: The generated tokens, including those of the stop string.
        weight: Its weight in an estimate; the weights of all samples sum to 1, or under the
            policies `beam` and `best-first` to the probability of their texts.
        finish_reason: `unfinished` while the run continues or if it was stopped.
        lineage: Ids of its paths, from the root to the leaf.
        reward: Its reward or label, if it was imported with one.
        cut: How many bytes a stop string cut off the end of the text.
    """

    text: str
    tokens: tuple[Token, ...]
    weight: float
    finish_reason: Literal["stop", "length", "unfinished"]
    lineage: tuple[int, ...]
    reward: float | str | None = None
    cut: int = 0

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of its tokens."""
        return tuple(token.id for token in self.tokens)

    @property
    def log_probs(self) -> tuple[float | None, ...]:
        """ln of the probability of each token in its processed distribution; None if unknown."""
        return tuple(token.log_prob for token in self.tokens)

    @property
    def entropies(self) -> tuple[float | None, ...]:
        """The entropy (nats) at each token; None if it was not measured."""
        return tuple(token.entropy for token in self.tokens)

    @property
    def log_prob(self) -> float | None:
        """ln of the probability of the text, the sum of `log_probs`; None if one is unknown."""
        return log_prob_of(self.tokens)

    def beam_score(self, length_penalty: float = 1.0) -> float:
        """By what beam search ranks it, `sequences_scores` in transformers; -inf if unknown."""
        known = self.log_prob if self.tokens else None
        return -math.inf if known is None else beam_score(known, len(self.tokens), length_penalty)

    @property
    def mean_entropy(self) -> float | None:
        """The mean of the entropies that were measured; None if there are none."""
        return mean_entropy_of(self.tokens)


def log_prob_of(tokens: Sequence[Token]) -> float | None:
    """ln of the probability of these tokens together; None if that of one is unknown."""
    known = [token.log_prob for token in tokens if token.log_prob is not None]
    return math.fsum(known) if len(known) == len(tokens) else None


def beam_score(log_prob: float, tokens: int, length_penalty: float) -> float:
    """By what beam search ranks texts: ln of the probability, per token with a penalty of 1."""
    return log_prob / math.pow(tokens, length_penalty)


def least_probability(tokens: Sequence[Token]) -> float:
    """The probability of these tokens together; 0, which is certain, if that of one is unknown."""
    known = log_prob_of(tokens)
    return 0.0 if known is None else math.exp(known)


def mean_entropy_of(tokens: Iterable[Token]) -> float | None:
    """The mean of the measured entropies (nats) of these tokens; None if there are none."""
    measured = [token.entropy for token in tokens if token.entropy is not None]
    return math.fsum(measured) / len(measured) if measured else None


def largest_first(values: Sequence[float]) -> list[int]:
    """The indices of the values, largest first; values that differ by rounding keep their order."""
    order = sorted(range(len(values)), key=lambda index: -values[index])
    levels = [0] * len(values)
    for before, after in pairwise(order):
        levels[after] = levels[before] + (values[after] < values[before] * (1 - _ROUNDING))
    return sorted(range(len(values)), key=levels.__getitem__)
