"""Attention of one layer over a tree: masked, with a shared prefix, and over lists of rows.

    python benchmarks/attention.py

N paths share a prompt of P rows and have T private rows each. The table shows median milliseconds
for 9 query heads in 3 groups, with heads of size 64. The costs in eab/caches/cascade.py come from
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

from eab.caches.attention import SuffixIndex, cascade_attention, masked_attention
from eab.caches.cascade import SuffixBlock, SuffixQueries, choose_blocks
from eab.caches.layers import ORDINARY
from eab.caches.listed_rows import ListedRows
from eab.compiled import can_compile

CASES = (
    (4, 300, 40),
    (8, 300, 40),
    (16, 30, 48),
    (20, 300, 5),
    (20, 300, 40),
    (20, 300, 200),
    (64, 300, 40),
    (64, 300, 200),
)
GROUPS, HEADS, SIZE = 3, 9, 64
MASKED, PREFIX, LISTS, BFLOAT16 = "masked", "shared prefix", "lists of rows", "bfloat16"
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
    """Time one case. Returns the milliseconds of each kind of attention, and whether masked
    attention would use the suffix block.
    """
    block = SuffixBlock(prompt, tuple(range(paths)), private)
    query = torch.randn(GROUPS, HEADS // GROUPS * paths, SIZE)
    keys, values = torch.randn(2, GROUPS, block.end, SIZE)
    visible = np.zeros((paths, block.end), dtype=np.bool_)
    visible[:, :prompt] = True
    for path in range(paths):
        visible[path, prompt + path :: paths] = True
    blocked = torch.zeros(visible.shape).masked_fill_(torch.from_numpy(~visible), float("-inf"))
    mask = blocked.repeat(HEADS // GROUPS, 1)
    halves = (keys.bfloat16(), values.bfloat16(), mask.bfloat16())
    each = np.arange(paths)
    suffixes = [SuffixIndex(SuffixQueries(block, each[:, None], each), torch.device("cpu"))]
    torch.testing.assert_close(
        cascade_attention(query, keys, values, None, 0.125, suffixes)[0],
        masked_attention(query, keys, values, mask, 0.125),
    )
    ways: dict[str, Callable[[], object]] = {
        MASKED: lambda: masked_attention(query, keys, values, mask, 0.125),
        PREFIX: lambda: cascade_attention(query, keys, values, None, 0.125, suffixes),
        BFLOAT16: lambda: masked_attention(query.bfloat16(), *halves, 0.125).float(),
    }
    if can_compile():
        by_head, rows = query.view(HEADS, paths, SIZE), ListedRows(visible)
        ways[LISTS] = lambda: rows.attend(by_head, keys, values, 0.125, ORDINARY)
    times = {name: milliseconds(way) for name, way in ways.items()}
    return times, bool(choose_blocks([block], visible).chain)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    table = Table("paths", "shared", "private each", MASKED, PREFIX, "ratio", LISTS, BFLOAT16)
    for paths, prompt, private in CASES:
        times, uses_prefix = case(paths, prompt, private)
        shown = {name: f"{time:.2f} ms" for name, time in times.items()}
        shown[PREFIX if uses_prefix else MASKED] += " *"
        ratio = f"{times[MASKED] / times[PREFIX]:.1f}"
        table.add_row(
            *map(str, (paths, prompt, private)),
            *(shown[MASKED], shown[PREFIX], ratio, shown.get(LISTS, "-"), shown[BFLOAT16]),
        )
    Console().print(table, "* what the cache uses where attention is not compiled")


if __name__ == "__main__":
    main()
