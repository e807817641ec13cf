"""Counter-based randomness: a draw depends on (seed, stream_key, step, index) alone.

It never depends on the batch, the cache, or the other paths. A stream key is a 64-bit key of the
random stream of a path. The first path has ROOT. At a fork, the heir (the child that would have
come without the fork) keeps the key, and every other child gets a new one.

The index depends on the purpose of the number, so two purposes never share a number; otherwise
estimates would be biased.
"""

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import Final

ROOT: Final = 0
_PRUNING: Final = 2**64 - 1
_WORDS: Final = struct.Struct("<4Q")


class Purpose(IntEnum):
    """The purpose of a path's random number at a step: each is the first of 2**32 indices."""

    TOKEN = 0  # number 0 draws the next token, the other numbers draw further tokens at a fork
    STREAM_KEY = 2**32  # of a child
    PERTURBATION = 2 * 2**32  # of the log-probabilities of the path and of its continuations


def uniform(seed: int, stream_key: int, step: int, purpose: Purpose, number: int = 0) -> float:
    """A random number in [0, 1) with 53 bits: the `number`-th for this purpose, below 2**32."""
    return (_hash(seed, stream_key, step, purpose + number) >> 11) * 2.0**-53


def pruning_uniform(seed: int, step: int) -> float:
    """The draw for pruning to the path limit, from a stream of its own, so it changes no token."""
    return (_hash(seed, _PRUNING, step, 0) >> 11) * 2.0**-53


def child_stream_key(stream_key: int, step: int, token: int) -> int:
    """The stream key of a child that is not the heir and takes `token` at a fork."""
    return _hash(stream_key, step, token, Purpose.STREAM_KEY) % _PRUNING or 1


def _hash(*words: int) -> int:
    return int.from_bytes(blake2b(_WORDS.pack(*words), digest_size=8).digest(), "little")
