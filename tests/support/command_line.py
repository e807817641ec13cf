"""`eab` in a process of its own, as people run it, or in this one, which is sooner there; and one
that is ended early.
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

# A command that gets a signal after each call of a function: its number and that place come first.
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
    """One command, to its end."""
    return python("-m", "eab", *arguments, **options)


def signalled(number: int, place: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command that gets a signal after each call of the function at this place."""
    return python("-c", _SIGNALLED, str(int(number)), place, *arguments)


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command, more = [sys.executable, *arguments], {"check": False, "text": True} | options
    return subprocess.run(command, capture_output=True, timeout=600, **more)  # on a busy machine


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


class Command:
    """One command of `eab` in this process, with the exceptions that it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def done(self, *arguments: object, given: str | None = None) -> str:
        """What it prints where it succeeds."""
        result = self._invoke(arguments, given)
        assert result.exit_code == 0, result.exception
        return result.stdout

    def error_of(self, kind: type[EabError], *arguments: object, given: str | None = None) -> str:
        """The message where it fails."""
        result = self._invoke(arguments, given)
        assert isinstance(result.exception, kind), result.output
        return str(result.exception)

    def _invoke(self, arguments: tuple[object, ...], given: str | None) -> Result:
        runner = CliRunner(env={"COLUMNS": "120"})
        return runner.invoke(app, [self._name, *map(str, arguments)], input=given)
