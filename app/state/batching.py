"""The comparison of ways to serve that one browser tab shows: its own, or the recorded one."""

from functools import partial
from typing import Final

from app.server.live_run import LiveBatching
from app.state.process import owner, worker
from app.state.slot import Slot
from eab.analysis.batching import BatchingComparison, Workload
from eab.lessons import bundled_runs


def _is_complete(live: LiveBatching) -> bool:
    return not live.active and live.state.complete


COMPARISON: Final = Slot(
    "batching",
    BatchingComparison,
    bundled_runs.batching,
    accepts=lambda _: True,
    drawable=_is_complete,
)


def start(workload: Workload, model_name: str) -> None:
    """Serve these requests in every way; a comparison of this tab that is active is stopped.

    Args:
        workload: The requests.
        model_name: The model, as `eab.models.loading` names it.
    """
    COMPARISON.begin(partial(worker().start_batching, workload, model_name, owner()))
