"""No cache: every step sends the whole text of every live path through the model again.

Nothing is kept between steps, so nothing is shared, copied or allocated. The cost is time: the
number of tokens per forward pass grows with paths x length. While a layer computes its attention,
K and V of all these tokens exist in this layer; this is the peak.
"""

from collections.abc import Sequence

from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.ledger import check_limit
from eab.caches.per_path import PerPathCache
from eab.caches.shape import KVShape
from eab.events import KVUsage, PathRows


class Recompute(PerPathCache):
    """Nothing is held, but a forward pass with more tokens takes more memory. So `byte_limit`
    bounds K and V that one forward pass computes in all layers.
    """

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        self._texts: dict[int, list[int]] = {0: []}

    @property
    def bytes_held(self) -> int:
        """Zero: nothing is kept after the forward pass."""
        return 0

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """The batch holds the whole text of each path, from position 0."""
        texts = [[*self._texts[path], *new] for path, new in zip(paths, tokens, strict=True)]
        needed = sum(map(len, texts)) * self.shape.row_bytes
        check_limit(
            needed, self.byte_limit, what="one forward pass over all texts computes K and V of"
        )
        self._texts |= zip(paths, texts, strict=True)
        return self._make_batch(paths, texts, [0] * len(texts), logits_to_keep)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """K and V belong to the model; their bytes count for the peak."""
        self._ledger.peak_bytes = max(self._ledger.peak_bytes, key.nbytes + value.nbytes)
        return super().attend(layer, query, key, value, scale)

    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        """Nothing is kept."""

    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Only token ids are kept."""
        text = self._texts.pop(path)
        self._texts |= {child: text for child in children}  # never changed in place

    def release(self, path: int) -> None:
        del self._texts[path]

    def trim(self, path: int, length: int) -> None:
        self._texts[path] = self._texts[path][:length]

    def usage(self, paths: Sequence[int]) -> KVUsage:
        return KVUsage(
            bytes_held=0,
            rows_shared=0,
            rows_private=0,
            rows_spare=0,
            rows_independent=sum(len(self._texts[path]) for path in paths),
            paths=tuple(PathRows(path, 0, 0) for path in paths),
            **self._ledger.totals(),
        )
