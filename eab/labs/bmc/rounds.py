"""Common parts of the BMC experiments: rounds, pauses, and the calibration before them."""

from collections.abc import Generator
from typing import Final

from eab.caches.calibration import Calibrator, calibrate
from eab.caches.growth import Calibration
from eab.caches.timing import RunBatch
from eab.events import Progressed
from eab.labs.bmc.results import ReportEvent
from eab.models.base import LanguageModel
from eab.timing import MIN_REPEATS

# Approximate time between pauses; a step or calibration round is never interrupted.
PAUSE_SECONDS: Final = 0.2
REPEATS: Final = MIN_REPEATS


def whole_model(model: LanguageModel) -> RunBatch:
    """A function that runs the whole step: the model's forward pass through the cache."""
    return lambda batch: model.forward([batch])


def repeat_words(number: int, repeats: int) -> str:
    """The name of this round; number 0 is the warm-up."""
    return f"repeat {number} of {repeats}" if number else "warm-up"


def calibrate_first(
    calibrator: Calibrator, share: float, start: float = 0.0
) -> Generator[ReportEvent, None, Calibration]:
    """Calibrate before an experiment, reporting a `share` of its progress from `start` on."""
    steps = calibrate(calibrator)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            calibration: Calibration = end.value
            yield calibration
            return calibration
        yield Progressed(start + share * done.share, done.words)
