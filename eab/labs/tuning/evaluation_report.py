"""The results of an evaluation, as a table and as a verdict on whether the tree helps."""

from dataclasses import dataclass
from typing import Final

from eab.labs.tuning.scores import Interval

GREEDY: Final = "greedy"
TREE: Final = "tree"
INDEPENDENT: Final = "independent"
SEMANTIC: Final = "semantic entropy"
ROW_HEADINGS: Final = ("Score", "Texts from", "AUROC", "AURAC", "Questions")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """How well one score separates wrong answers from right ones."""

    way: str
    score: str
    auroc: Interval
    aurac: Interval


@dataclass(frozen=True, slots=True)
class EntropyError:
    """The error of the semantic entropy, over questions whose answers chance decides."""

    way: str
    bias: Interval  # mean of estimate minus truth, in nats
    absolute: Interval  # mean absolute error, in nats


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The results of an evaluation."""

    facts: int
    wrong: int  # how many of these questions the greedy text answers wrongly
    chances: int
    tokens: dict[str, int]  # generated tokens through the model, by way
    texts: int
    rows: tuple[ScoreRow, ...]
    gains: dict[
        str, Interval
    ]  # AUROC of the tree minus that of independent texts, paired, by score
    errors: tuple[EntropyError, ...]
    # Mean absolute error of the tree minus that of independent texts, paired; negative if the tree
    # is better. None without such questions.
    error_gain: Interval | None


def report_rows(report: EvaluationReport) -> list[tuple[str, ...]]:
    """One row per score and way of sampling, under ROW_HEADINGS."""
    return [
        (row.score, row.way, written(row.auroc), written(row.aurac), f"{row.auroc.questions:,}")
        for row in report.rows
    ]


def written(interval: Interval) -> str:
    """A value and its interval as text: "0.812 (0.751 to 0.866)"."""
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def verdict(report: EvaluationReport) -> str:
    """Whether the tree helps, in plain sentences; no difference if an interval contains 0."""
    words = []
    if (gain := report.gains.get(SEMANTIC)) is not None:
        words.append(
            f"Wrong answers: the semantic entropy of the tree {_compared(gain, 'better', 'worse')} "
            f"(difference of AUROC {_signed(gain)}, {gain.questions:,} questions)."
        )
    if report.error_gain is not None:
        error = report.error_gain
        words.append(
            f"Known distributions: its error {_compared(error, 'larger', 'smaller')} "
            f"(difference {_signed(error)} nats, {error.questions:,} questions)."
        )
    return " ".join(words)


def _compared(difference: Interval, above: str, below: str) -> str:
    if not difference.excludes_zero:
        return "shows no measurable difference from independent texts"
    return f"is {above if difference.low > 0 else below} than that of independent texts"


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.3f}, from {interval.low:+.3f} to {interval.high:+.3f}"
