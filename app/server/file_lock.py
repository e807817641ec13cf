"""A lock on an open file. The system frees it when the process ends, even after a crash."""

import sys
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt

    def lock(file: BinaryIO) -> None:
        """Lock the file, whose position must be 0. Raises OSError if it is already locked."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(file: BinaryIO) -> None:
        """Lock the file. Raises OSError if it is already locked."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
