"""Rounds one weight matrix to a grid of few values, as the layers in eab.models.quantized do.

    rounding = round_to_grid(weight, RoundingGrid("affine", bits=4, share=32))

Weights that share a scale are rounded to `zero + scale * unit`, where `unit` is one of the method's
integers or one of the 16 values of NF4.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from eab.errors import ConfigError, check_one_of
from eab.weight_formats import LARGEST_INT8, NF4

Method = Literal["absmax", "affine", "nf4"]
Share: TypeAlias = Literal["matrix", "row"] | int  # which weights share a scale; int: group size
Floats: TypeAlias = NDArray[np.float32]

MATRIX: Final = "matrix"
ROW: Final = "row"
BITS: Final = range(2, 9)
NF4_BITS: Final = 4
OUTLIER: Final = 4.0  # standard deviations from the mean
CONSTANT_BYTES: Final = 4  # per scale: one float32, or scale and zero in bfloat16
SCALE_BLOCK: Final = 256  # number of scales that share a scale, with double quantization
_TINY: Final = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class RoundingGrid:
    """The grid that weights are rounded to."""

    # `absmax` is symmetric around 0, `affine` spans from the smallest weight to the largest, `nf4`
    # uses quantiles of a normal distribution
    method: Method
    bits: int = NF4_BITS  # per weight, 2 to 8; 4 for `nf4`
    # which weights share a scale: the whole matrix, a row, or this many neighbours in a row
    share: Share = ROW
    double: bool = False  # whether the scales of `nf4` are themselves rounded to 8 bits

    def __post_init__(self) -> None:
        allowed = [NF4_BITS] if self.method == "nf4" else list(BITS)
        check_one_of(get_args(Method), self.method, "the method is")
        if self.bits not in allowed:
            raise ConfigError(
                f"{self.method} has {self.bits!r} bits; it can have {allowed[0]} to {allowed[-1]}"
            )
        if isinstance(self.share, str) and self.share not in (MATRIX, ROW):
            raise ConfigError(f"share is {self.share!r}; it must be matrix, row or a group size")
        if isinstance(self.share, int) and self.share < 2:
            raise ConfigError(f"a group has {self.share} weights; it needs at least 2")
        if self.double and self.method != "nf4":
            raise ConfigError(
                f"double quantization is set for {self.method}; only nf4 supports it, so turn it "
                "off"
            )

    @property
    def unit(self) -> Floats:
        """The values of the grid before scale and zero, in ascending order."""
        if self.method == "nf4":
            return np.array(NF4, np.float32)
        half = 2 ** (self.bits - 1)
        return np.arange(1 - half if self.method == "absmax" else -half, half, dtype=np.float32)


@dataclass(frozen=True)
class Rounding:
    """A rounded matrix."""

    grid: RoundingGrid
    weight: Floats  # original weights, (out, in)
    rounded: Floats  # rounded weights, (out, in)
    scale: Floats  # one per group of weights that share a scale, (G,)
    zero: Floats  # one per group, (G,); the value of the integer 0

    @cached_property
    def error(self) -> float:
        """Size of the change relative to the size of the weights (Frobenius norms)."""
        size = float(np.linalg.norm(self.weight))
        return float(np.linalg.norm(self.rounded - self.weight)) / size if size else 0.0

    @property
    def scale_bytes(self) -> float:
        """Bytes of all scales and zeros."""
        groups = len(self.scale)
        if not self.grid.double:
            return CONSTANT_BYTES * groups
        return groups + CONSTANT_BYTES * (-(-groups // SCALE_BLOCK) + 1)

    @property
    def bytes_per_weight(self) -> float:
        """Bytes per weight, including scales and zeros."""
        return self.grid.bits / 8 + self.scale_bytes / self.weight.size

    @cached_property
    def outliers(self) -> int:
        """The number of weights more than 4 standard deviations from the mean."""
        distances = np.abs(self.weight - self.weight.mean())
        return int(np.sum(distances > OUTLIER * max(float(self.weight.std()), _TINY)))

    def levels(self, group: int) -> Floats:
        """The values that weights of this group can be rounded to, ascending."""
        levels: Floats = self.zero[group] + self.scale[group] * self.grid.unit
        return levels

    def group_at(self, quantile: float) -> int:
        """The group at this quantile of coarseness: 0.5 is typical, 1 is the coarsest."""
        order = np.argsort(self.scale, kind="stable")
        return int(order[round(quantile * (len(order) - 1))])


def round_to_grid(weight: Floats, grid: RoundingGrid) -> Rounding:
    """Round a matrix (out, in) of finite numbers."""
    groups = _groups(weight, grid.share)
    unit = grid.unit
    scale, zero = _constants(groups, grid)
    middles = (unit[1:] + unit[:-1]) / 2
    codes = np.searchsorted(middles, (groups - zero[:, None]) / scale[:, None])
    if grid.double:
        scale = _in_eight_bits(scale)
    values = (zero[:, None] + scale[:, None] * unit[codes]).astype(np.float32)
    rounded = values.reshape(len(weight), -1)[:, : weight.shape[1]]
    return Rounding(grid, weight, rounded, scale, zero)


def _groups(weight: Floats, share: Share) -> Floats:
    """(out, in) -> (G, weights per group); a shorter last group is padded with its last weight."""
    if share == MATRIX:
        return weight.reshape(1, -1)
    size = weight.shape[1] if isinstance(share, str) else share
    filled = np.pad(weight, ((0, 0), (0, -weight.shape[1] % size)), mode="edge")
    return filled.reshape(-1, size)


def _constants(groups: Floats, grid: RoundingGrid) -> tuple[Floats, Floats]:
    unit = grid.unit
    if grid.method == "affine":
        low, high = groups.min(1), groups.max(1)
        scale = _bfloat16(np.maximum((high - low) / np.float32(len(unit) - 1), np.float32(1e-8)))
        return scale, _bfloat16(low - scale * unit[0])
    scale = np.maximum(np.abs(groups).max(1) / unit[-1], np.float32(_TINY))
    return scale, np.zeros_like(scale)


def _bfloat16(values: Floats) -> Floats:
    """The nearest bfloat16 values, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.asarray(rounded, np.uint32).view(np.float32)


def _in_eight_bits(scale: Floats) -> Floats:
    """The scales with their distances from the mean rounded to 8 bits, in blocks of 256."""
    mean = scale.mean()
    distances = np.pad(scale - mean, (0, -len(scale) % SCALE_BLOCK)).reshape(-1, SCALE_BLOCK)
    steps = np.maximum(np.abs(distances).max(1, keepdims=True), np.float32(1e-12)) / LARGEST_INT8
    rounded = np.round(distances / steps) * steps + mean
    return np.asarray(rounded.reshape(-1)[: len(scale)], np.float32)
