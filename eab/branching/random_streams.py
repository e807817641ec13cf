"""Counter-based randomness: a draw depends on (seed, lineage, step, index) alone.

Never on the batch, the cache, or the other paths. A lineage is a 64-bit key: the first path has
ROOT; at a fork the child that would have come anyway keeps the key, every other child gets a new
one.
"""

import struct
from hashlib import blake2b
from typing import Final

ROOT: Final = 0
_PRUNING: Final = 2**64 - 1


def uniform(seed: int, stream_key: int, step: int, index: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (_hash(seed, stream_key, step, index) >> 11) * 2.0**-53


def pruning_uniform(seed: int, step: int) -> float:
    """The draw that prunes to the path limit: a stream of its own, so it disturbs no token."""
    return uniform(seed, _PRUNING, step, 0)


def child_stream_key(stream_key: int, step: int, token: int) -> int:
    """The key of a child that takes `token` at a fork although its parent would not have."""
    return _hash(stream_key, step, token, 2**32) % _PRUNING or 1


def _hash(*words: int) -> int:
    return int.from_bytes(
        blake2b(struct.pack(f"<{len(words)}Q", *words), digest_size=8).digest(), "little"
    )
