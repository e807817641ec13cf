"""K and V of rows in tensors, and attention of a prepared batch over them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.layers import PlacedLayer
from eab.caches.rows_read import Reading, plan_readings, seen_by_kind
from eab.caches.shape import KVShape, to_device


class RowTensors:
    """The rows of one run: where the tokens of the prepared batch store K and V, what they read."""

    def __init__(self, shape: KVShape, padded: bool = False) -> None:
        self.shape, self.padded = shape, padded
        self._kinds = shape.mask_kinds
        self._layers = [
            PlacedLayer(shape.layer(index), slot, self._kinds.index(shape.mask_kind(index)))
            for index, slot in enumerate(shape.slots)
        ]
        self._keys, self._values = shape.empty_tensors()  # (G, C, D) for each layer with its own
        # The prepared batch:
        self._rows = torch.empty(0, dtype=torch.int64)  # of its tokens, (T,)
        self._seen: Sequence[
            NDArray[np.bool_]
        ] = ()  # by its tokens, in layers of each kind, (T, C)
        self._visible = np.zeros((0, 0), dtype=np.bool_)  # to its tokens, (T, C)
        self._row_positions = np.zeros(0, dtype=np.int64)  # (C,)
        self._shown: Sequence[Tensor] = ()  # `_seen` on the device
        self._readings: Sequence[Reading] = ()  # one for each kind

    @property
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors (measured)."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    def _show(
        self,
        visible: NDArray[np.bool_],
        positions: NDArray[np.int64],
        row_positions: NDArray[np.int64],
    ) -> None:
        """Let the tokens of a batch see rows.

        Args:
            visible: Which rows each token sees, (T, C).
            positions: The positions of the tokens, (T,).
            row_positions: The positions of the rows, (C,).
        """
        self._visible, self._row_positions = visible, row_positions
        self._seen = seen_by_kind(self._kinds, visible, positions, row_positions)

    def _place(self, *inputs: Sequence[int] | NDArray[np.int64]) -> list[Tensor]:
        """The inputs of a batch, on the device, and with them what its tokens see, as shown."""
        placed = to_device(self.shape.device, *inputs, *self._seen)
        self._shown = placed[len(inputs) :]
        self.end_attention_at(len(self._row_positions))
        return placed[: len(inputs)]

    def end_attention_at(self, row: int) -> None:
        """Let the prepared batch, without static buffers, read what it sees before `row`.

        Attending again with a different end shows what the rows in between cost.
        """
        self._readings = plan_readings(
            self.shape,
            self._kinds,
            list(zip(self._seen, self._shown, strict=True)),
            self._row_positions[:row],
            self.padded,
        )

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `Attends`."""
        own, (keys, values) = self._layers[layer], self._store(layer, key, value)
        return self._readings[own.mask].attend(query[0], keys, values, scale, own.kind)[None]

    def attend_own(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `AttendOwn`."""
        keys, values = self._store(layer, key, value)
        reading = self._readings[self._layers[layer].mask]
        return reading.attend_with_lse(query[0], keys, values, scale)

    def _store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store K and V of the new tokens, if the layer has its own; returns those of all rows."""
        own = self._layers[layer]
        keys, values = self._keys[own.slot], self._values[own.slot]
        if own.stores:
            keys.index_copy_(1, self._rows, key[0])
            values.index_copy_(1, self._rows, value[0])
        return keys, values

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """See `ShowsRows`."""
        keys, values = self._store(layer, key, value)
        end = len(self._row_positions)
        return keys[:, :end], values[:, :end]

    def visible_rows(self) -> tuple[Tensor, Tensor]:
        """See `ShowsRows`."""
        seen, positions = map(torch.from_numpy, (self._visible, self._row_positions))
        return seen.to(self.shape.device), positions.to(self.shape.device)
