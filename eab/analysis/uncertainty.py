"""How uncertain a model is about its answer: semantic entropy and related scores.

Semantic entropy is the entropy over answers instead of texts (Kuhn et al., 2023, arXiv 2302.09664;
Farquhar et al., Nature 630, 2024). Three estimators differ in how they define the probability of an
answer:

- weighted: the sum of the weights of its texts. The weights are unbiased, but the estimated entropy
  is too low on average, because unseen answers are missing.
- discrete: the share of its texts, each counted equally. Valid for independent texts only; the
  texts of a tree differ by construction.
- Rao-Blackwellised: the probability of its distinct texts, as a share of all probability seen.

Entropies are in nats. All scores are about the tokens that decide the answer.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eab.analysis.answer_parts import TEXT, GivenPart
from eab.analysis.answers import Answers, answer_numbers, entropy, leaf_answers
from eab.analysis.same_answer import SameAnswer, exact
from eab.run import RunState


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The scores of one run; entropies in nats."""

    semantic: float
    standard_error: float | None  # jackknife over independent texts; None for a tree
    # Certain bounds if all unseen answers count as one; otherwise only the lower one is certain
    semantic_bounds: tuple[float, float]
    discrete: float
    rao_blackwellised: float
    predictive: float  # entropy over texts: the weighted mean of -ln p
    length_normalised: float  # per token (Malinin and Gales, 2021, arXiv 2002.07650)
    explored: float  # probability (0 to 1) of all texts seen
    # Whether the path limit dropped paths. If so, it also limits the number of answers: an entropy
    # near ln(max_paths) says more about the limit than about the model.
    limited: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error, which is None if there are too few samples."""

    value: float
    standard_error: float | None


def uncertainty(run: RunState, answers: Answers) -> Uncertainty:
    """The scores of a run over its decided leaves; all are 0 if there are none."""
    independent = run.started.config.policy == "independent"
    answer_of = {
        leaf: number for number, answer in enumerate(answers.ranked) for leaf in answer.leaves
    }
    units = [{answer_of[leaf.leaf]: 1.0} for leaf in answers.decided]
    return Uncertainty(
        semantic=answers.entropy,
        standard_error=jackknife(units).standard_error if independent else None,
        semantic_bounds=answers.entropy_bounds,
        discrete=entropy([len(answer.leaves) for answer in answers.ranked]),
        rao_blackwellised=entropy([answer.low for answer in answers.ranked]),
        predictive=_weighted_mean((leaf.weight, -leaf.log_prob) for leaf in answers.decided),
        length_normalised=_weighted_mean(
            (leaf.weight, -leaf.log_prob / max(1, len(leaf.tokens))) for leaf in answers.decided
        ),
        explored=answers.explored,
        limited=any(path.limited_steps for path in run.paths),
    )


def semantic_entropy_of_runs(
    runs: Sequence[RunState], part: GivenPart = TEXT, same: SameAnswer = exact
) -> Estimate:
    """Weighted semantic entropy (nats) of several runs of one prompt, with a standard error.

    Runs that differ only in their seed are independent, so the jackknife over them is valid even
    for trees. Runs in which no leaf is decided are left out.
    """
    decided = [
        (number, leaf) for number, run in enumerate(runs) for leaf in leaf_answers(run, part)[0]
    ]
    decided.sort(key=lambda each: -each[1].weight)
    question = runs[0].started.prompt if runs else ""
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


def _weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    weighted = [(weight, value) for weight, value in pairs if weight > 0]
    total = math.fsum(weight for weight, _ in weighted)
    return math.fsum(weight * value for weight, value in weighted) / total if weighted else 0.0
