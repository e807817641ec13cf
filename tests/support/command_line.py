"""`eab` in a process of its own, as people run it."""

import subprocess
import sys


def eab(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    command = [sys.executable, "-m", "eab", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **options
    )  # type: ignore[call-overload, no-any-return]
