"""The units of the entropy threshold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from eab.settings import Real, Slider

ThresholdUnit = Literal["nats", "normalised", "rank"]


@dataclass(frozen=True, slots=True)
class ThresholdScale:
    """The entropy threshold in one unit: its range, its slider on the page, and what it means."""

    values: Real
    widget: Slider
    help: str


THRESHOLD_SCALES: Final[Mapping[ThresholdUnit, ThresholdScale]] = {
    "nats": ThresholdScale(
        Real(0.0, 20.0, hint="nats; 0.65 is about two equally likely tokens"),
        Slider(0.0, 4.0, 0.01),
        "Entropy in nats. e to this power is the number of equally likely tokens with this "
        "entropy.",
    ),
    "normalised": ThresholdScale(
        Real(0.0, 1.0, hint="as threshold_unit=normalised"),
        Slider(0.0, 1.0, 0.01),
        "Share of the largest possible entropy, ln V, where V is the size of the vocabulary.",
    ),
    "rank": ThresholdScale(
        Real(1.0, 24.0, hint="as threshold_unit=rank; 3 is the third-highest entropy"),
        Slider(1.0, 24.0, 1.0),
        "The rank of the threshold among the entropies along a greedy continuation of your prompt: "
        "1 is the highest. A higher rank gives more forks.",
    ),
}
