"""A lock on an open file. The system frees it when the process ends, however it ends."""

import sys
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt

    def lock(file: BinaryIO) -> None:
        """Lock the file, which is at its beginning; OSError if another one has locked it."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(file: BinaryIO) -> None:
        """Lock the file; OSError if another one has locked it."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
