"""Reading the file of a report: JSON, possibly compressed by gzip, within limits."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eab.errors import EabError, RecordError
from eab.formatting import reason_of

MAX_BYTES: Final = 64 * 2**20  # of JSON in a file
MAX_VALUES: Final = 2_000_000
_GZIP: Final = b"\x1f\x8b"  # the first bytes of a gzip file
_OF_A_BAD_FILE: Final = (
    EabError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


@contextmanager
def explained(what: str, name: str) -> Iterator[None]:
    """Raise RecordError, which says what is wrong with the file, for any error of a bad file."""
    try:
        yield
    except _OF_A_BAD_FILE as error:
        said = str(error) if isinstance(error, EabError) else reason_of(error)
        raise RecordError(f"the {what} {name} cannot be read: {said}") from error


def unpacked(data: bytes) -> bytes:
    """The JSON in a file, compressed by gzip or not; RecordError if it is too large."""
    if data.startswith(_GZIP):
        unpacking = zlib.decompressobj(wbits=31)  # gzip
        data = unpacking.decompress(data, MAX_BYTES)
        if unpacking.unconsumed_tail:
            raise RecordError(f"it has more than {MAX_BYTES // 2**20} MiB")
    if data.count(b",") > MAX_VALUES:
        raise RecordError(f"it has more than {MAX_VALUES:,} values")
    return data
