"""`eab` in a new process, as users run it; in this process, which starts faster; and in a process
that is ended early by a signal.
"""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner, Result

from eab.cli.commands import app, main
from eab.errors import EabError

# A command that gets a signal after each call of a function. The first arguments name both.
_SIGNALLED = """
import os, pkgutil, sys
from eab.cli import commands

number, place, name = int(sys.argv.pop(1)), *sys.argv.pop(1).rsplit(".", 1)
owner = pkgutil.resolve_name(place)
whole = getattr(owner, name)

def then_a_signal(*arguments):
    whole(*arguments)
    os.kill(os.getpid(), number)

setattr(owner, name, then_a_signal)
commands.main()
"""


def eab(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run one command to its end in a new process."""
    return python("-m", "eab", *arguments, **options)


def signalled(number: int, place: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command that gets this signal after each call of the function at this place."""
    return python("-c", _SIGNALLED, str(int(number)), place, *arguments)


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command, more = [sys.executable, *arguments], {"check": False, "text": True} | options
    return subprocess.run(command, capture_output=True, timeout=600, **more)  # on a busy machine


def eab_here(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command in this process; raises any exception that would end in a traceback."""
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


def invoked(*arguments: object, given: str | None = None, columns: int = 120) -> Result:
    """Run one command in this process; the result has any exception that it raised."""
    runner = CliRunner(env={"COLUMNS": str(columns)})
    return runner.invoke(app, [*map(str, arguments)], input=given)


def output_of(*arguments: object, given: str | None = None, columns: int = 120) -> str:
    """The output of a command that must succeed, without its progress bar and warnings."""
    result = invoked(*arguments, given=given, columns=columns)
    assert result.exit_code == 0, result.exception or result.output
    return result.stdout


def error_of_command(
    name: str, kind: type[EabError], *arguments: object, given: str | None = None
) -> str:
    """The message of a command that must fail with this kind of error."""
    result = invoked(name, *arguments, given=given)
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)
