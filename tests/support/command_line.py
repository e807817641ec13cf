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


class Command:
    """One command of `eab` that runs in this process and exposes the exceptions it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def done(self, *arguments: object, given: str | None = None) -> str:
        """The output of the command, which must succeed."""
        result = self._invoke(arguments, given)
        assert result.exit_code == 0, result.exception
        return result.stdout

    def error_of(self, kind: type[EabError], *arguments: object, given: str | None = None) -> str:
        """The error message of the command, which must fail with this kind of error."""
        result = self._invoke(arguments, given)
        assert isinstance(result.exception, kind), result.output
        return str(result.exception)

    def _invoke(self, arguments: tuple[object, ...], given: str | None) -> Result:
        runner = CliRunner(env={"COLUMNS": "120"})
        return runner.invoke(app, [self._name, *map(str, arguments)], input=given)
