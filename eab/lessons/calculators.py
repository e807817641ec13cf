"""Sliders for a formula or a computation, for exercises that do not use the board."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from eab.analysis.kv_allocation import kv_allocation
from eab.labs.quantization.rounding import RoundingGrid, round_to_grid
from eab.lessons.measures import Unit
from eab.lessons.sources import Sources
from eab.speculation.formulas import expected_tokens

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Knob:
    """A slider over these values, in ascending order."""

    label: str
    values: tuple[float, ...]
    start: float  # initial value


@dataclass(frozen=True, slots=True)
class Calculator:
    """Sliders and the results computed from them."""

    knobs: Mapping[str, Knob]
    results: Mapping[str, Unit]  # the unit of each result, by name
    compute: Callable[[Values, Sources], Mapping[str, float]]  # values of the sliders -> results
    formula: str  # how the results are computed, as Markdown for the reader

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that a goal can refer to: the results and the sliders themselves."""
        return (*self.results, *self.knobs)

    def numbers(self, values: Values, sources: Sources) -> dict[str, float]:
        """The value of each of `names` at these slider positions."""
        return {**self.compute(values, sources), **values}


def _kv_bytes(values: Values, _: Sources) -> dict[str, float]:
    per_token = (
        2 * values["layers"] * values["KV heads"] * values["head size"] * values["bytes per number"]
    )
    per_text = per_token * values["tokens"] + values["MiB of state"] * 2**20
    return {"bytes per token": per_token, "bytes per text": per_text}


def _drafts(values: Values, _: Sources) -> dict[str, float]:
    return {"tokens per pass": expected_tokens(values["alpha"] / 100, int(values["length"]))}


def _blocks(values: Values, sources: Sources) -> dict[str, float]:
    allocation = kv_allocation([sources.run], int(values["block"]))
    return {"waste": allocation.wasted_share("blocks")}


def _static_batches(values: Values, sources: Sources) -> dict[str, float]:
    """Passes that requests of these lengths take in static batches, without the prefill."""
    slots = int(values["slots"])
    lengths = [request.new_tokens for request in sources.batching().workload.requests]
    passes = sum(max(lengths[first : first + slots]) for first in range(0, len(lengths), slots))
    return {"passes": passes, "idle slots": 1 - sum(lengths) / (slots * passes)}


def _rounding(values: Values, sources: Sources) -> dict[str, float]:
    grid = RoundingGrid("affine", bits=int(values["bits"]), share=int(values["group"]))
    rounding = round_to_grid(sources.matrix(), grid)
    return {"error": rounding.error, "bits per weight": 8 * rounding.bytes_per_weight}


CALCULATORS: Final[dict[str, Calculator]] = {
    "KV bytes": Calculator(
        {
            "layers": Knob("Layers", (4, 8, 16, 32, 48, 64, 80), 32),
            "KV heads": Knob("KV heads", (1, 2, 4, 8, 16, 32, 64), 32),
            "head size": Knob("Head size", (32, 64, 96, 128, 256), 128),
            "bytes per number": Knob("Bytes per number", (1, 2, 4), 2),
            "tokens": Knob("Tokens in the text", (512, 1024, 2048, 4096, 8192, 16384), 4096),
            "MiB of state": Knob("State per text (MiB)", (0, 1, 4, 16, 64), 0),
        },
        {"bytes per token": "bytes", "bytes per text": "bytes"},
        _kv_bytes,
        "bytes per token = 2 × layers × KV heads × head size × bytes per number; bytes per text = "
        "bytes per token × tokens + state",
    ),
    "draft tokens": Calculator(
        {
            "alpha": Knob("Acceptance rate (%)", tuple(range(0, 100, 5)), 50),
            "length": Knob("Draft tokens per pass", tuple(range(17)), 1),
        },
        {"tokens per pass": ""},
        _drafts,
        r"(1 − α^(k+1)) / (1 − α) for k draft tokens at the acceptance rate α",
    ),
    "block size": Calculator(
        {"block": Knob("Rows per block", (1, 2, 4, 8, 16, 32, 64, 128), 64)},
        {"waste": "share"},
        _blocks,
        "computed from this run with the rules of a paged cache",
    ),
    "static batches": Calculator(
        {"slots": Knob("Slots", (1, 2, 3, 4, 5, 6, 8, 10), 8)},
        {"passes": "", "idle slots": "share"},
        _static_batches,
        "passes = sum over the batches of the longest text; prefill is not counted",
    ),
    "rounding": Calculator(
        {
            "bits": Knob("Bits per weight", tuple(range(2, 9)), 8),
            "group": Knob("Weights that share a scale", (8, 16, 32, 64, 128), 128),
        },
        {"error": "share", "bits per weight": ""},
        _rounding,
        "error = size of the change / size of the weights, for one matrix of the model",
    ),
}
