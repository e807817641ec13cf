"""Write a file so that its name never stands for half of it."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path | str, data: bytes) -> None:
    """Write a file; an older one of that name is replaced only once the new one is complete.

    A device or a pipe, such as /dev/stdout, is written to as it is.

    Raises:
        OSError: It cannot be written; an older file is as it was.
    """
    target = Path(os.path.realpath(path))  # what a link names, not the link, is replaced
    if os.path.exists(target) and not os.path.isfile(target):
        target.write_bytes(data)
        return
    scratch = target.with_name(target.name + ".part")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, target)
    except OSError:
        with suppress(OSError):  # on a read-only disk this fails, too
            scratch.unlink(missing_ok=True)
        raise
