"""Attention of one layer over a tree: masked attention against shared-prefix attention.

    python benchmarks/attention.py

N paths share a prompt of P rows and have T private rows each. The table shows median milliseconds
for 9 query heads in 3 groups, with heads of size 64. The costs in eab/caches/cascade.py come from
this table. The last column shows whether bfloat16 rows, with half the bytes, would pay off with
float32 weights: it times the same masked attention in bfloat16, including the query conversion.
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
def case(paths: int, prompt: int, private: int) -> tuple[float, float, float, bool]:
    """Time one case. Returns the milliseconds of masked attention, of shared-prefix attention and
    of masked attention in bfloat16, and whether the cache would use the suffix block.
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
    return (
        milliseconds(lambda: masked_attention(query, keys, values, mask, 0.125)),
        milliseconds(lambda: cascade_attention(query, keys, values, None, 0.125, suffixes)),
        milliseconds(lambda: masked_attention(query.bfloat16(), *halves, 0.125).float()),
        bool(choose_blocks([block], visible).chain),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    table = Table(
        "paths",
        "shared",
        "private each",
        "masked",
        "shared prefix",
        "ratio",
        "the cache uses",
        "bfloat16",
    )
    for paths, prompt, private in CASES:
        masked, cascade, half, uses_cascade = case(paths, prompt, private)
        row = (
            f"{masked:.2f} ms",
            f"{cascade:.2f} ms",
            f"{masked / cascade:.1f}",
            "shared prefix" if uses_cascade else "masked",
        )
        table.add_row(str(paths), str(prompt), str(private), *row, f"{half:.2f} ms")
    Console().print(table)


if __name__ == "__main__":
    main()
