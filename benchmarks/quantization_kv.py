"""Whether 8-bit K and V would pay off; benchmarks/quantization.py prints the answer."""

from collections.abc import Callable
from typing import Any

import torch
from published import Placement

from eab.caches.attention import attention_kernels, empty_mask, masked_attention
from eab.caches.timing import now
from eab.timing import Clock, comparison, take_turns, timed


def kv_attention(placement: Placement, repeats: int, clock: Clock) -> tuple[str, dict[str, float]]:
    """Time attention over 8-bit K and V, with a scale per row and head, against the model's dtype.

    20 queries attend over 1,100 rows of the 0.5b shape: 2 KV heads of size 64, 7 query heads each.
    """
    heads, group, queries, rows, size = 2, 7, 20, 1100, 64
    place: Any = {"dtype": placement.dtype, "device": placement.device}
    query = torch.randn(heads, group, queries, size, **place)
    keys, values = (torch.randn(heads, rows, size, **place) for _ in range(2))
    rounded = [_eight_bits(keys), _eight_bits(values)]
    mask = empty_mask(queries, rows, query.dtype, query.device).zero_()

    def attended(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with attention_kernels(query.device):
            result = masked_attention(query, k, v, mask, size**-0.5)
        now(query.device)
        return result

    def plain() -> torch.Tensor:
        return attended(keys, values)

    def eight_bits() -> torch.Tensor:
        return attended(*((integers * scale).to(query.dtype) for integers, scale in rounded))

    many: dict[str, Callable[[], object]] = {
        name: lambda attend=attend: [attend() for _ in range(100)]  # type: ignore[misc]
        for name, attend in {"as loaded": plain, "int8": eight_bits}.items()
    }
    timings = take_turns({name: timed(work, clock) for name, work in many.items()}, repeats)
    error = ((eight_bits() - plain()).norm() / plain().norm()).item()
    ratio = timings["int8"].median / timings["as loaded"].median
    verdict = comparison(timings["int8"], timings["as loaded"])
    text = (
        f"KV in eight bits, one scale per row and head: 20 queries over {rows:,} rows of one layer "
        f"take {timings['int8'].median * 10:.2f} ms, in {placement.dtype_name} "
        f"{timings['as loaded'].median * 10:.2f} ms ({verdict}). The output is off by {error:.1%}. "
        f"A row takes {(size + 4) / (query.element_size() * size):.0%} of the bytes.\n"
    )
    return text, {f"kv_int8_over_{placement.dtype_name}_attention": ratio}


def _eight_bits(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize rows (G, C, D). Returns integers of the same shape, and scales (G, C, 1)."""
    rows = rows.float()  # bfloat16 would round 127 up to 128, which int8 does not have
    scale = rows.abs().amax(-1, keepdim=True) / 127
    return (rows / scale).round().to(torch.int8), scale
