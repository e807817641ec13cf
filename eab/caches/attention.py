"""Attention of one layer over cache rows: one masked pass, or that and lanes, merged by their
log-sum-exp.

Shapes: H query heads in G groups of g = H / G, T queries (tokens), D head size. Query heads of a
group become query rows, so K and V are not expanded per query head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from eab.caches.cascade import SuffixPart


class SuffixIndex:
    """A SuffixPart on the device: (lanes, most queries of a lane), and indices, None where path i is
    alone in lane i.
    """

    def __init__(self, part: SuffixPart, device: torch.device) -> None:
        self.stretch, self.paths = part.stretch, len(part.back)
        self.shape = part.queries.shape
        straight = part.back.tolist() == list(range(self.shape[0]))
        self.queries = None if straight else torch.from_numpy(part.queries.ravel()).to(device)
        self.back = None if straight else torch.from_numpy(part.back).to(device)


def masked_pass(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """query (G, g * T, D) over rows (G, C, D) under an additive mask (g * T, C) -> (G, g * T,
    D).
    """
    return functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], attn_mask=mask, scale=scale
    )[0]


def split_pass(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    lanes: Sequence[SuffixIndex],
) -> Tensor:
    """The same over all rows up to the end of the last lane; the mask covers those before the
    first.

    softmax over A and B together is the average of the softmax over each, weighted by their sums of
    exponentials.
    """
    groups, _, size = query.shape
    trunk = lanes[0].stretch.start
    out, total = _with_log_sum(
        query[None], keys[None, :, :trunk], values[None, :, :trunk], mask, scale
    )
    for lane in lanes:
        own, own_total = _lane_pass(query, keys, values, scale, lane)
        out = torch.lerp(out, own, torch.sigmoid(own_total - total)[..., None].to(out.dtype))
        if lane is not lanes[-1]:
            total = torch.logaddexp(total, own_total)
    return out.reshape(groups, -1, size)


def _lane_pass(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, lane: SuffixIndex
) -> tuple[Tensor, Tensor]:
    """-> (1, G, g * T, D), (1, G, g * T): each query over the rows of its lane."""
    groups, rows, size = query.shape
    (lanes, most), stretch = lane.shape, lane.stretch
    by_path = query.view(groups, -1, lane.paths, size)
    by_path = by_path if lane.queries is None else by_path[:, :, lane.queries]
    by_lane = (
        by_path.view(groups, -1, lanes, most, size)
        .permute(2, 0, 1, 3, 4)
        .reshape(lanes, groups, -1, size)
    )
    strips = [
        tensor[:, stretch.start : stretch.end]
        .view(groups, stretch.steps, lanes, size)
        .permute(2, 0, 1, 3)
        for tensor in (keys, values)
    ]
    out, total = _with_log_sum(by_lane, strips[0], strips[1], None, scale)
    out = (
        out.reshape(lanes, groups, -1, most, size)
        .permute(1, 2, 0, 3, 4)
        .reshape(groups, -1, lanes * most, size)
    )
    total = (
        total.reshape(lanes, groups, -1, most).permute(1, 2, 0, 3).reshape(groups, -1, lanes * most)
    )
    if lane.back is not None:
        out, total = out[:, :, lane.back], total[:, :, lane.back]
    return out.reshape(1, groups, rows, size), total.reshape(1, groups, rows)


def _with_log_sum(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """PyTorch's CPU kernel, called by its own name because only so it hands out the log of the
    softmax's sum.
    """
    out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    return out, total
