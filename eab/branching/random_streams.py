"""Counter-based randomness: a draw depends on (seed, stream_key, step, index) alone.

It never depends on the batch, the cache, or the other paths. A stream key is a 64-bit key of the
random stream of a path. The first path has ROOT. At a fork, the heir (the child that would have
come without the fork) keeps the key, and every other child gets a new one.
"""

import struct
from hashlib import blake2b
from typing import Final

ROOT: Final = 0
_PRUNING: Final = 2**64 - 1


def uniform(seed: int, stream_key: int, step: int, index: int) -> float:
    """A random number in [0, 1) with 53 bits."""
    return (_hash(seed, stream_key, step, index) >> 11) * 2.0**-53


def pruning_uniform(seed: int, step: int) -> float:
    """The draw for pruning to the path limit, from a stream of its own, so that it changes no
    token.
    """
    return uniform(seed, _PRUNING, step, 0)


def child_stream_key(stream_key: int, step: int, token: int) -> int:
    """The stream key of a child that is not the heir and takes `token` at a fork."""
    return _hash(stream_key, step, token, 2**32) % _PRUNING or 1


def _hash(*words: int) -> int:
    return int.from_bytes(
        blake2b(struct.pack(f"<{len(words)}Q", *words), digest_size=8).digest(), "little"
    )
