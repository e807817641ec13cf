"""What a cell of a sweep costs and what it gains."""

from dataclasses import dataclass
from typing import Final

from eab.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column of the cells.

    Attributes:
        column: Its name in the table of cells.
        label: Its name on the page.
        unit: What is counted; empty for a pure number.
        more_is_better: Whether a larger value is the better one.
        help: What it is, in a sentence.
    """

    column: str
    label: str
    unit: str
    more_is_better: bool
    help: str

    @property
    def axis(self) -> str:
        """Its name with its unit, for the axis of a chart."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


COSTS: Final = {
    one.column: one
    for one in (
        Quantity(
            "tokens",
            "Tokens through the model",
            "tokens",
            False,
            "Every token that a forward pass took, the prompt and dropped paths included.",
        ),
        Quantity(
            "kv_bytes",
            "Peak of the KV cache",
            "bytes",
            False,
            "The most bytes that the KV cache held at once.",
        ),
        Quantity(
            "seconds",
            "Time",
            "seconds",
            False,
            "Wall time while other runs shared the forward passes; only runs that the model made "
            "have one.",
        ),
    )
}
GAINS: Final = {
    one.column: one
    for one in (
        Quantity(
            "distribution_error",
            "Error of the answer distribution",
            "RMSE",
            False,
            "Root mean square distance from the known probabilities of the answers.",
        ),
        Quantity(
            "distinct_answers",
            "Distinct answers",
            "answers",
            True,
            "Texts that give the same answer count once.",
        ),
        Quantity("distinct_texts", "Distinct texts", "texts", True, "Different texts of a run."),
        Quantity(
            "probability_seen",
            "Probability seen",
            "",
            True,
            "The probability of all texts that were seen, together.",
        ),
        Quantity(
            "correct",
            "Weight of right answers",
            "",
            True,
            "Of all weight, what stands on right answers; for prompts with a known answer.",
        ),
        Quantity(
            "brier",
            "Brier score of the answers",
            "",
            False,
            "Calibration: how far the weights of the answers are from the truth, from 0 (best) to "
            "2; for prompts with a known answer.",
        ),
    )
}
QUANTITIES: Final = (
    COSTS
    | GAINS
    | {
        one.column: one
        for one in (
            Quantity("paths", "Paths", "paths", True, "Texts of a run."),
            Quantity("forks", "Forks", "forks", True, "Where the paths of a run branched."),
            Quantity(
                "semantic_entropy",
                "Semantic entropy",
                "nats",
                True,
                "Entropy over the answers, an estimate that is too low on average.",
            ),
        )
    }
)


def quantity(column: str) -> Quantity:
    """The quantity of this column.

    Raises:
        ConfigError: Cells have no such quantity.
    """
    if column not in QUANTITIES:
        raise ConfigError(
            f"cells have no quantity {column[:60]!r}; choose one of: {', '.join(QUANTITIES)}"
        )
    return QUANTITIES[column]
