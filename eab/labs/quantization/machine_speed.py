"""How fast a machine reads weights and multiplies: the two limits of the roofline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from eab.caches.timing import now
from eab.labs.quantization.results import MachineMeasured
from eab.timing import Measure, timed

_COLUMNS: Final = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts that are read and multiplied."""

    read_bytes: int  # size of a matrix; more than the caches of the processor or GPU hold
    side: int  # side length of two square matrices
    times: int  # repetitions per measurement; on a GPU, a single one is shorter than its launch


SIZES: Final[dict[str, Sizes]] = {"cpu": Sizes(2**28, 1024, 1), "cuda": Sizes(2**30, 8192, 8)}


@torch.inference_mode()
def measure_machine(device: torch.device, dtype: torch.dtype, repeats: int) -> MachineMeasured:
    """Time reading and multiplying alternately, after one warm-up round."""
    sizes = SIZES.get(device.type, SIZES["cpu"])
    rows = sizes.read_bytes // dtype.itemsize // _COLUMNS
    wide = torch.ones(rows, _COLUMNS, dtype=dtype, device=device)
    row = torch.ones(_COLUMNS, dtype=dtype, device=device)
    square = torch.ones(sizes.side, sizes.side, dtype=dtype, device=device)

    def read() -> None:
        for _ in range(sizes.times):
            wide @ row

    def multiply() -> None:
        for _ in range(sizes.times):
            square @ square

    works: Mapping[str, Measure] = {
        "read": timed(read, lambda: now(device)),
        "multiply": timed(multiply, lambda: now(device)),
    }
    rounds = [{name: work() for name, work in works.items()} for _ in range(repeats + 1)][1:]
    return MachineMeasured(
        tuple(sizes.times * wide.nbytes / seconds["read"] for seconds in rounds),
        tuple(sizes.times * 2 * sizes.side**3 / seconds["multiply"] for seconds in rounds),
    )
