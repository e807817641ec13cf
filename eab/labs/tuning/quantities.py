"""The costs and gains that are measured in the cells of a sweep."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Quantity:
    """A numeric column of the cells."""

    column: str
    label: str
    unit: str  # unit, or what is counted; empty for a pure number
    more_is_better: bool  # whether larger values are better
    help: str = ""

    @property
    def axis(self) -> str:
        """The label with the unit, unless it names the unit, for the axis of a chart."""
        names_it = self.unit.lower() in self.label.lower()
        return self.label if names_it else f"{self.label} ({self.unit})"


_TOKENS = "All tokens in forward passes, including the prompt and dropped paths."
_BYTES = "The largest size of the KV cache during the run."
_TIME = "Wall time, with forward passes shared by other runs. Resimulated cells have none."
COSTS: Final = {
    each.column: each
    for each in (
        Quantity("tokens", "Tokens through the model", "tokens", False, _TOKENS),
        Quantity("kv_bytes", "Peak of the KV cache", "bytes", False, _BYTES),
        Quantity("seconds", "Time", "seconds", False, _TIME),
    )
}
_ERROR = "Root mean square error of the probabilities of the answers, where these are known."
_SEEN = "Total probability of all texts of the run."
_RIGHT = "Share of the weight on right answers, for prompts with a known answer."
_BRIER = (
    "Calibration: squared distance of the answers' weights from the truth, from 0 (best) to 2, for "
    "prompts with a known answer."
)
GAINS: Final = {
    each.column: each
    for each in (
        Quantity("distribution_error", "Error of the answer distribution", "RMSE", False, _ERROR),
        Quantity("distinct_answers", "Distinct answers", "answers", True, "Different answers."),
        Quantity("distinct_texts", "Distinct texts", "texts", True, "Different texts."),
        Quantity("probability_seen", "Probability seen", "", True, _SEEN),
        Quantity("correct", "Weight of right answers", "", True, _RIGHT),
        Quantity("brier", "Brier score of the answers", "", False, _BRIER),
    )
}
PATHS: Final = Quantity("paths", "Paths", "paths", True)
