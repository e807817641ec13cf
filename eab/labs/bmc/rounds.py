"""What the BMC experiments have in common: rounds, pauses, and the calibration before them."""

from collections.abc import Generator
from typing import Final

from eab.caches.calibration import Calibrator, calibrate
from eab.caches.growth import Calibration
from eab.caches.timing import RunBatch
from eab.events import Progressed
from eab.labs.bmc.results import ReportEvent
from eab.models.base import LanguageModel
from eab.timing import MIN_REPEATS

# About the time between two pauses; neither a step nor a calibration round is interrupted.
PAUSE_SECONDS: Final = 0.2
REPEATS: Final = MIN_REPEATS


def whole_model(model: LanguageModel) -> RunBatch:
    """Runs the whole step: the model's forward pass through the cache."""
    return lambda batch: model.forward([batch])


def repeat_words(number: int, repeats: int) -> str:
    """What round this is; number 0 is the warm-up."""
    return f"repeat {number} of {repeats}" if number else "warm-up"


def calibrate_first(
    calibrator: Calibrator, share: float, start: float = 0.0
) -> Generator[ReportEvent, None, Calibration]:
    """Calibrate as the first part of an experiment: from `start`, a share of its whole progress."""
    steps = calibrate(calibrator)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            calibration: Calibration = end.value
            yield calibration
            return calibration
        yield Progressed(start + share * done.share, done.words)
