"""No cache: every step sends the whole text of every live path through the model again.

Nothing is kept between steps, so nothing is shared, copied or allocated. What it costs is time: the
tokens through the model grow with paths x length. While a layer attends, its K and V of all these
tokens are alive; that is the peak.
"""

from collections.abc import Sequence

from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.ledger import check_limit
from eab.caches.per_path import PathByPathCache
from eab.caches.shape import KVShape
from eab.events import KVUsage, PathRows


class Recompute(PathByPathCache):
    """See KVCache.

    byte_limit: nothing is held, but what a pass takes grows with its tokens; it is bound by the K
    and V that the pass computes over all layers.
    """

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        self._texts: dict[int, list[int]] = {0: []}

    @property
    def bytes_held(self) -> int:
        """Nothing outlives the pass."""
        return 0

    def pack(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        wanted: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """See KVCache.pack: each path's whole text, from position 0."""
        texts = [[*self._texts[path], *new] for path, new in zip(paths, tokens, strict=True)]
        needed = sum(map(len, texts)) * self.shape.row_bytes
        check_limit(needed, self.byte_limit, what="one pass over all texts computes K and V of")
        self._texts |= zip(paths, texts, strict=True)
        return self._pass(paths, texts, [0] * len(texts), wanted)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See KVCache.attend. The model made K and V; they are counted while they are in use."""
        self._ledger.peak_bytes = max(self._ledger.peak_bytes, key.nbytes + value.nbytes)
        return super().attend(layer, query, key, value, scale)

    def _see(self, path: int, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value

    def fork(self, path: int, children: Sequence[int]) -> None:
        """See KVCache.fork: texts only."""
        text = self._texts.pop(path)
        self._texts |= {child: text for child in children}  # never changed in place

    def release(self, path: int) -> None:
        """See KVCache.release."""
        del self._texts[path]

    def trim(self, path: int, length: int) -> None:
        """See KVCache.trim."""
        self._texts[path] = self._texts[path][:length]

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """See KVCache.usage: no rows at all."""
        return KVUsage(
            bytes_held=0,
            rows_shared=0,
            rows_private=0,
            rows_spare=0,
            rows_independent=sum(len(self._texts[path]) for path in paths),
            paths=tuple(PathRows(path, 0, 0) for path in paths),
            **self._ledger.totals(),
        )
