"""The costs and gains that are measured in the cells of a sweep."""

from dataclasses import dataclass
from typing import Final

from eab.errors import check_one_of


@dataclass(frozen=True, slots=True)
class Quantity:
    """A numeric column of the cells."""

    column: str
    label: str
    unit: str  # unit, or what is counted; empty for a pure number
    more_is_better: bool  # whether larger values are better
    help: str

    @property
    def axis(self) -> str:
        """The label with the unit, for the axis of a chart."""
        return self.axis_in(self.unit)

    def axis_in(self, unit: str) -> str:
        """The label with another unit, which is left out if the label already names it."""
        return self.label if unit.lower() in self.label.lower() else f"{self.label} ({unit})"


def _by_column(*quantities: Quantity) -> dict[str, Quantity]:
    return {each.column: each for each in quantities}


COSTS: Final = _by_column(
    Quantity(
        "tokens",
        "Tokens through the model",
        "tokens",
        False,
        "All tokens in forward passes, including the prompt and dropped paths.",
    ),
    Quantity(
        "kv_bytes",
        "Peak of the KV cache",
        "bytes",
        False,
        "The largest size of the KV cache during the run.",
    ),
    Quantity(
        "seconds",
        "Time",
        "seconds",
        False,
        "Wall time, with forward passes shared by other runs. Resimulated cells have none.",
    ),
)
GAINS: Final = _by_column(
    Quantity(
        "distribution_error",
        "Error of the answer distribution",
        "RMSE",
        False,
        "Root mean square error of the probabilities of the answers, where these are known.",
    ),
    Quantity(
        "distinct_answers", "Distinct answers", "answers", True, "Number of different answers."
    ),
    Quantity("distinct_texts", "Distinct texts", "texts", True, "Number of different texts."),
    Quantity(
        "probability_seen",
        "Probability seen",
        "",
        True,
        "Total probability of all texts of the run.",
    ),
    Quantity(
        "correct",
        "Weight of right answers",
        "",
        True,
        "Share of the weight on right answers, for prompts with a known answer.",
    ),
    Quantity(
        "brier",
        "Brier score of the answers",
        "",
        False,
        "Calibration: squared distance of the answers' weights from the truth, from 0 (best) "
        "to 2, for prompts with a known answer.",
    ),
)
QUANTITIES: Final = (
    COSTS
    | GAINS
    | _by_column(
        Quantity("paths", "Paths", "paths", True, "Number of texts."),
        Quantity("forks", "Forks", "forks", True, "Number of forks."),
        Quantity(
            "semantic_entropy",
            "Semantic entropy",
            "nats",
            True,
            "Entropy over the answers; the estimate is too low on average.",
        ),
    )
)


def quantity(column: str) -> Quantity:
    """The quantity in this column; ConfigError if there is none."""
    check_one_of(QUANTITIES, column, "the quantity of cells is")
    return QUANTITIES[column]
