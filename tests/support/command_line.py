"""`eab` in a process of its own, as people run it, or in this one, which is sooner there."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from eab.cli.commands import main


def eab(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    command = [sys.executable, "-m", "eab", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,  # a busy machine is no failure
        check=False,
        **options,
    )  # type: ignore[call-overload, no-any-return]


def eab_here(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """The same in this process; an exception that a user would see as a traceback is raised."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["eab", *arguments]),
        patch.object(sys, "stdin", io.StringIO(input)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
