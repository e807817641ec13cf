"""Attention of one layer over a tree: under a mask, over gathered rows, and over lists of rows.

    python benchmarks/attention.py

N paths share a prompt of P rows and have T private rows each. The table shows median milliseconds
for 9 query heads in 3 groups, with heads of size 64. The costs in eab/caches/rows_read.py come from
this table. *Lists of rows* is what the cache uses where attention is compiled for the processor
(eab/compiled/attention.py). *bfloat16* shows whether bfloat16 rows, with half the bytes, would pay
off with float32 weights: masked attention in bfloat16, including the conversion of the query.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from eab.caches.attention import attention_mask
from eab.caches.layers import ORDINARY
from eab.caches.listed_rows import ListedRows
from eab.caches.plain_rows import GatheredRows, MaskedRows
from eab.caches.rows_read import Reading, gathering_reads_less
from eab.compiled import can_compile

CASES = (
    (1, 300, 40),
    (4, 300, 40),
    (8, 300, 40),
    (16, 30, 48),
    (20, 4, 40),
    (20, 300, 5),
    (20, 300, 40),
    (20, 300, 200),
    (64, 4, 480),
    (64, 300, 40),
    (64, 300, 200),
)
GROUPS, HEADS, SIZE, SCALE = 3, 9, 64, 0.125
CPU = torch.device("cpu")
MASKED, GATHERED, LISTS, BFLOAT16 = "masked", "gathered", "lists of rows", "bfloat16"
REPEATS = 15


def milliseconds(run: Callable[[], object]) -> float:
    """The median time of a call over REPEATS repeats, after a warm-up."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


@torch.inference_mode()
def case(paths: int, prompt: int, private: int) -> tuple[dict[str, float], bool]:
    """Time one case. Returns the milliseconds of each kind of attention, and whether the plain way
    would gather the rows.
    """
    rows = prompt + paths * private
    query = torch.randn(HEADS, paths, SIZE)
    keys, values = torch.randn(2, GROUPS, rows, SIZE)
    visible = np.zeros((paths, rows), dtype=np.bool_)
    visible[:, :prompt] = True
    for path in range(paths):
        visible[path, prompt + path :: paths] = True
    mask = attention_mask(torch.from_numpy(visible), torch.float32)
    readings: dict[str, Reading] = {
        MASKED: MaskedRows(0, rows, mask),
        GATHERED: GatheredRows(visible, np.arange(rows), CPU),
    }
    if can_compile():
        readings[LISTS] = ListedRows(visible)
    half, halves = MaskedRows(0, rows, mask.bfloat16()), (keys.bfloat16(), values.bfloat16())
    found = [one.attend(query, keys, values, SCALE, ORDINARY) for one in readings.values()]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-4)
    times = {
        name: milliseconds(lambda one=one: one.attend(query, keys, values, SCALE, ORDINARY))
        for name, one in readings.items()
    }
    times[BFLOAT16] = milliseconds(
        lambda: half.attend(query.bfloat16(), *halves, SCALE, ORDINARY).float()
    )
    return times, gathering_reads_less(visible)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    table = Table("paths", "shared", "private each", MASKED, GATHERED, LISTS, BFLOAT16)
    for paths, prompt, private in CASES:
        times, gathers = case(paths, prompt, private)
        shown = {name: f"{time:.2f}" for name, time in times.items()}
        shown[GATHERED if gathers else MASKED] += " *"
        table.add_row(
            *map(str, (paths, prompt, private)),
            *(shown.get(name, "-") for name in (MASKED, GATHERED, LISTS, BFLOAT16)),
        )
    Console().print(table, "* what the cache uses where attention is not compiled")


if __name__ == "__main__":
    main()
