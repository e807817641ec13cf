"""What one browser tab shows on the page Quantization: the measured formats, and the run of Explore
with weights in fewer bits.
"""

from functools import partial
from typing import Final

from app.server.live_run import LiveFormats, LiveRun
from app.state.process import owner, worker
from app.state.slot import Slot
from eab.lessons import bundled_runs
from eab.quantization.results import FormatReport
from eab.run import Run, RunFold
from eab.weight_formats import AS_LOADED, full_name, split_name


def _is_complete(live: LiveFormats) -> bool:
    return not live.active and live.state.complete


FORMATS: Final = Slot(
    "formats", FormatReport, bundled_runs.formats, accepts=lambda _: True, drawable=_is_complete
)


def _has_ended_with_texts(live: LiveRun) -> bool:
    return not live.active and live.state.run is not None and bool(live.state.run.steps)


QUANTIZED: Final = Slot(
    "quantized",
    RunFold,
    bundled_runs.quantized,
    accepts=lambda live: split_name(live.model_name)[1] != AS_LOADED,
    drawable=_has_ended_with_texts,
)


def base_model(name: str) -> str:
    """The name of a model without its weight format."""
    return split_name(name)[0]


def run_with(run: Run, weights: str) -> None:
    """Make this run again with its model's weights in another format."""
    started = run.started
    model_name = full_name(started.model.name, weights)
    QUANTIZED.begin(
        partial(
            worker().grow_run,
            *(started, started.continued_tokens, started.config, model_name, owner()),
        )
    )


def measure(prompt: str, model_name: str) -> None:
    """Measure every weight format; a measurement of this tab that is active is stopped.

    Args:
        prompt: Whose next token is compared.
        model_name: The model, as `eab.models.loading` names it.
    """
    FORMATS.begin(partial(worker().start_formats, prompt, model_name, owner()))
