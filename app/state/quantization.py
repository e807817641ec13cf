"""What one browser tab shows on the page Quantization: the measured formats, and the run of Explore
with weights in fewer bits.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from app.server.job import Job, JobContext, grown_run_job
from app.state.slot import Slot, has_ended_with_texts
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ModelError
from eab.labs.quantization.results import FormatReport, ReportEvent
from eab.lessons import bundled_runs
from eab.run import RunFold, RunState
from eab.weight_formats import AS_LOADED, full_name, split_name

if TYPE_CHECKING:
    from eab.models.transformers_model import TransformersModel


FORMATS: Final = Slot(
    "formats",
    FormatReport,
    bundled_runs.formats,
    drawable=lambda live: not live.active and live.state.complete,
)
QUANTIZED: Final = Slot(
    "quantized",
    RunFold,
    bundled_runs.quantized,
    accepts=lambda live: split_name(live.model_name)[1] != AS_LOADED,
    drawable=has_ended_with_texts,
)


def base_model(name: str) -> str:
    """The name of a model without its weight format."""
    return split_name(name)[0]


def run_with(run: RunState, weights: str) -> None:
    """Make this run again with its model's weights in another format."""
    started = run.started
    model_name = full_name(started.model.name, weights)
    QUANTIZED.start(grown_run_job(started, started.continued_tokens, started.config, model_name))


def formats_job(prompt: str, model_name: str) -> Job[FormatReport]:
    """A model measured in every weight format."""

    def begin(context: JobContext) -> Iterator[ReportEvent]:
        from eab.labs.quantization.measure import measure_formats
        from eab.models.loading import load_model

        if context.model.kv_shape.blocks is not None:
            raise ModelError(
                f"the weights of {model_name} are on a server; choose a model on this machine"
            )

        def load(weights: str) -> "TransformersModel":
            if weights == AS_LOADED:
                return cast("TransformersModel", context.model)
            return load_model(model_name, weights=weights)

        return measure_formats(load, prompt)

    next_token = Request(prompt, BranchingConfig(max_paths=1, max_new_tokens=1))
    return Job("formats", model_name, FormatReport(), begin, requests=(next_token,))
