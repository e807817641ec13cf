"""What one browser tab shows of each laboratory: its own measurements, or recorded ones.

The sweeps of the Tune page are in `tuning`.
"""

from functools import partial
from typing import Any, Final

from app.server.live_run import LiveTask
from app.state.slot import Slot, has_ended_with_texts, of_kind
from eab.labs.batching.results import BatchingComparison
from eab.labs.bmc.results import EXPERIMENTS, Experiment, ExperimentReport
from eab.labs.quantization.results import FormatReport
from eab.labs.variants.results import VariantRuns
from eab.lessons import bundled_runs
from eab.run import RunFold
from eab.weight_formats import AS_LOADED, split_name


def _is_complete(live: LiveTask[Any]) -> bool:
    return not live.active and live.state.complete


def _has_runs(live: LiveTask[VariantRuns]) -> bool:
    """Whether there is a run of every variant; repeats for the times may still be running."""
    return live.state.has_all_runs


def _has_ended_with_points(live: LiveTask[ExperimentReport]) -> bool:
    return not live.active and live.state.presentable


BATCHING: Final = Slot("batching", BatchingComparison, bundled_runs.batching, _is_complete)
FORMATS: Final = Slot("formats", FormatReport, bundled_runs.formats, _is_complete)
CACHES: Final = Slot(
    "cache_variants", VariantRuns, bundled_runs.caches, _has_runs, of_kind("cache")
)
DRAFT_LENGTHS: Final = Slot(
    "draft_length_variants",
    VariantRuns,
    bundled_runs.draft_lengths,
    _has_runs,
    of_kind("draft length"),
)
BMC: Final[dict[Experiment, Slot[ExperimentReport]]] = {
    name: Slot(
        f"bmc_{name}",
        ExperimentReport,
        partial(bundled_runs.bmc, name),
        _has_ended_with_points,
        of_kind(f"bmc {name}"),
    )
    for name in EXPERIMENTS
}
# the run on Explore with weights in fewer bits
QUANTIZED: Final = Slot(
    "quantized",
    RunFold,
    bundled_runs.quantized,
    has_ended_with_texts,
    accepts=lambda live: split_name(live.model_name)[1] != AS_LOADED,
)
