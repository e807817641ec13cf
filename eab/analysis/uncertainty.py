"""How uncertain a model is about its answer: semantic entropy and related scores.

Semantic entropy is the entropy over answers instead of texts (Kuhn et al., 2023, arXiv 2302.09664;
Farquhar et al., Nature 630, 2024). Three estimators differ in how they define the probability of an
answer:

- weighted: the sum of the weights of its texts. Unseen answers are missing, which makes the entropy
  too low on average, but not where a fork decides the answer: the probabilities of all its tokens
  are known.
- discrete: the share of its texts, each counted equally. Valid for independent texts only; the
  texts of a tree differ by construction.
- Rao-Blackwellised: the probability of its distinct texts, as a share of all probability seen.

Entropies are in nats. All scores are about the tokens that decide the answer. An entropy that was
not measured is None: a single text says nothing about how texts differ.

Each fork of a tree contributes to it: by the chain rule, the entropy over the answers seen is a sum
over the forks: the share of the weight that reaches a fork, times the mutual information between
the branch taken and the answer. The branch factor caps this information at ln k, but the entropy
over all tokens at the fork is known. So the contribution of a fork is that entropy, as far as its
branches decide the answer. Where all tokens became branches, the two are equal.

The information at a fork is the Jensen-Shannon divergence between the answers of its branches. With
few texts below each branch it is biased upwards, so early forks are given too much.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from eab.analysis.answer_rules import TEXT, GivenPart, SameAnswer, exact
from eab.analysis.answers import Answers, answer_numbers, entropy, text_answers
from eab.config import BY_PROBABILITY
from eab.run import Path, RunState, largest_first, least_probability


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The scores of one run; entropies in nats, None if they were not measured."""

    semantic: float | None
    standard_error: float | None  # jackknife over independent texts; None for a tree
    semantic_bounds: tuple[float, float]  # certain
    discrete: float | None
    rao_blackwellised: float | None
    predictive: float | None  # entropy over texts: the weighted mean of -ln p
    length_normalised: float | None  # per token (Malinin and Gales, 2021, arXiv 2002.07650)
    explored: float  # probability (0 to 1) of all texts seen
    texts: int  # number of texts seen; equal ones count once, unless they are independent
    # Settings that kept branches out of the tree, and so limit the number of answers: an entropy
    # near ln(max_paths) says more about the limit than about the model.
    limited_by: tuple[str, ...]
    reason: str  # why the semantic entropy was not measured; empty if it was

    @property
    def limited(self) -> bool:
        """Whether a setting kept branches out of the tree."""
        return bool(self.limited_by)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error, which is None if there are too few samples."""

    value: float | None  # None if fewer than two texts have an answer
    standard_error: float | None


_KNOWN: Final = 0.005  # nats; bounds this near to each other are one value when rounded
_NOTICEABLE: Final = 0.01  # probability (0 to 1)


def uncertainty(run: RunState, answers: Answers) -> Uncertainty:
    """The scores of a run over its decided leaves."""
    independent = run.started.config.policy == "independent"
    answer_of = {
        leaf: number for number, answer in enumerate(answers.ranked) for leaf in answer.leaves
    }
    decided = answers.decided
    # In an imported run, a leaf stands for all samples with its text.
    samples = {
        leaf: round(answer.weight * run.started.imported) or 1 for leaf, answer in decided.items()
    }
    units = [{answer_of[leaf]: 1.0} for leaf in decided for _ in range(samples[leaf])]
    texts = len(units) if independent else len({answer.tokens for answer in decided.values()})
    low, high = answers.entropy_bounds
    reason = f"{'only one' if texts else 'no'} text has an answer"
    if texts > 1 or (texts and high - low < _KNOWN):
        reason = ""
    limits = _limits(run)
    known = [
        (answer.weight, log_prob, answer.count)
        for answer in decided.values()
        if (log_prob := answer.log_prob) is not None
    ]
    known = known if len(known) == len(decided) else []
    estimate = entropy([answer.estimate for answer in answers.ranked])
    if not independent:
        estimate = math.fsum(fork.contribution for fork in attribute_to_forks(run, answers))
    return Uncertainty(
        semantic=None if reason else min(max(low, estimate), high),
        # with other seeds, the estimate is the mean of several runs
        standard_error=jackknife(units).standard_error
        if independent and not limits and not run.repeats
        else None,
        semantic_bounds=(low, high),
        discrete=None
        if reason
        else entropy([sum(samples[leaf] for leaf in answer.leaves) for answer in answers.ranked]),
        rao_blackwellised=None
        if reason or not known
        else entropy([answer.low for answer in answers.ranked]),
        predictive=_weighted_mean((weight, -log_prob) for weight, log_prob, _ in known),
        length_normalised=_weighted_mean(
            (weight, -log_prob / max(1, tokens)) for weight, log_prob, tokens in known
        ),
        explored=answers.explored,
        texts=texts,
        limited_by=limits,
        reason=reason,
    )


def _limits(run: RunState) -> tuple[str, ...]:
    """The settings that kept a branch out of the tree."""
    config, threshold = run.started.config, max(run.started.threshold_nats, _KNOWN)
    acted = {"max_paths": any(path.limited_steps for path in run.paths)}
    if config.policy in BY_PROBABILITY:  # the weights are what the limit left of all probability
        left_out = 1.0 - math.fsum(leaf.weight for leaf in run.leaves())
        acted["max_paths"] = acted["max_paths"] or left_out >= _NOTICEABLE
    if config.policy in ("fair", "original"):
        acted["min_fork_weight"] = config.min_fork_weight > 0 and any(
            (token.entropy or 0.0) >= threshold
            for path in run.paths
            for token in path.tokens[path.parent >= 0 :]  # a fork chose the first token of a child
        )
        acted["branch_factor"] = any(
            len(run.branches(path)) >= config.branch_factor and _left_out(run, path) >= _NOTICEABLE
            for path in run.paths
        )
    return tuple(name for name, has_acted in acted.items() if has_acted)


def _left_out(run: RunState, path: Path) -> float:
    """The probability of the tokens that did not become branches where this path forks."""
    seen = (least_probability([one]) for child in run.branches(path) for one in child.tokens[:1])
    return path.weight * (1.0 - math.fsum(seen))


def semantic_entropy_of_runs(
    runs: Sequence[RunState], part: GivenPart = TEXT, same: SameAnswer = exact
) -> Estimate:
    """Weighted semantic entropy (nats) of several runs of one prompt, with a standard error.

    Runs that differ only in their seed are independent, so the jackknife over them is valid even
    for trees. Runs in which no leaf is decided are left out. What is known at forks is not used.
    """
    decided = [
        (number, answer)
        for number, run in enumerate(runs)
        for text, answer in text_answers(run, part)
        if answer is not None and text.in_estimate
    ]
    if len({(number, leaf.tokens) for number, leaf in decided}) < 2:
        return Estimate(None, None)
    decided = [decided[at] for at in largest_first([leaf.weight for _, leaf in decided])]
    question = runs[0].started.prompt
    answers = answer_numbers(question, [leaf for _, leaf in decided], same)
    units: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (number, leaf), answer in zip(decided, answers, strict=True):
        units[number][answer] += leaf.weight
    return jackknife([_shares(unit) for unit in units.values()])


def jackknife(units: Sequence[Mapping[int, float]]) -> Estimate:
    """The entropy (nats) of the mean of several distributions, one per independent sample.

    The standard error is the jackknife estimate (Efron and Stein, 1981). It is 0 if all samples
    agree, which does not mean that the next sample would agree too.
    """
    total: defaultdict[int, float] = defaultdict(float)
    for unit in units:
        for answer, probability in unit.items():
            total[answer] += probability
    value, count = entropy(list(total.values())), len(units)
    if count < 2:
        return Estimate(value, None)
    without = [
        entropy(
            [max(0.0, probability - unit.get(answer, 0.0)) for answer, probability in total.items()]
        )
        for unit in units
    ]
    mean = math.fsum(without) / count
    squares = math.fsum((estimate - mean) ** 2 for estimate in without)
    return Estimate(value, math.sqrt((count - 1) / count * squares))


def _shares(unit: Mapping[int, float]) -> dict[int, float]:
    total = math.fsum(unit.values())
    return {answer: probability / total for answer, probability in unit.items() if total > 0}


def _weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    weighted = [(weight, value) for weight, value in pairs if weight > 0]
    total = math.fsum(weight for weight, _ in weighted)
    return math.fsum(weight * value for weight, value in weighted) / total if weighted else None


_Weights: TypeAlias = defaultdict[int, float]  # by answer number


@dataclass(frozen=True, slots=True)
class ForkShare:
    """The contribution of one fork to the semantic entropy."""

    path: int  # id of the path that forks
    weight: float  # share (0 to 1) of the weight of all decided texts that is below this fork
    token_entropy: float  # entropy (nats) of all tokens at the fork
    branch_entropy: float  # entropy (nats) of the weights of its branches
    information: float  # mutual information (nats) of branch and answer, given the fork is reached

    @property
    def contribution(self) -> float:
        """This fork's part of the semantic entropy, in nats."""
        return self.weight * self.decisiveness * self.token_entropy

    @property
    def decisiveness(self) -> float:
        """From 0 (the branches differ only in wording) to 1 (the branch decides the answer)."""
        return min(1.0, self.information / self.branch_entropy) if self.branch_entropy else 0.0


def attribute_to_forks(run: RunState, answers: Answers) -> tuple[ForkShare, ...]:
    """The contribution of every fork with two or more branches that lead to answers, largest first.

    The contributions add up to the semantic entropy. The artificial fork where independent texts
    start is not counted.
    """
    below: dict[int, _Weights] = defaultdict(lambda: defaultdict(float))
    for number, answer in enumerate(answers.ranked):
        for leaf in answer.leaves:
            for path in run.lineage(leaf):
                below[path][number] += run.paths[leaf].weight
    total = math.fsum(below[0].values()) if 0 in below else 0.0
    shares = [
        _share(path, below[path.id], branches, total)
        for path in run.paths
        if len(branches := [below[child] for child in path.children if _weight(below, child)]) > 1
    ]
    return tuple(sorted(shares, key=lambda fork: -fork.contribution))


def _weight(below: dict[int, _Weights], path: int) -> float:
    return math.fsum(below[path].values()) if path in below else 0.0


def _share(path: Path, here: _Weights, branches: list[_Weights], total: float) -> ForkShare:
    weights = [math.fsum(branch.values()) for branch in branches]
    weight = math.fsum(weights)
    within = math.fsum(
        share / weight * entropy(list(branch.values()))
        for share, branch in zip(weights, branches, strict=True)
    )
    information = max(0.0, entropy(list(here.values())) - within)
    known = path.fork_entropy or 0.0
    return ForkShare(path.id, weight / total, known, entropy(weights), information)
