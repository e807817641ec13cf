"""Other servers in processes of their own, such as the explorer: started, waited for and ended."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE: Final = 120  # seconds until a server must answer, and until it must have ended


@contextmanager
def serving(
    command: list[str], port: int, health: str, **options: Any
) -> Iterator[tuple[str, int]]:
    """Run the command that serves at this port.

    Args:
        command: starts the server, which must stay in the same process.
        port: the port on this machine where the server listens.
        health: a path that the server answers as soon as it is up.
        options: for `subprocess.Popen`. The output of the server is discarded by default.

    Yields:
        The address of the server and the id of its process.

    Raises:
        RuntimeError: The server ended, or does not answer.
    """
    dropped = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, **dropped | options)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_it_answers(f"{address}/{health}", server)
        yield address, server.pid
    finally:
        server.terminate()
        server.wait(PATIENCE)


def serving_explorer(
    command: list[str] | None = None, port: int | None = None, **options: Any
) -> AbstractContextManager[tuple[str, int]]:
    """Run the explorer as `eab app` does, or by another command with its port; see `serving`."""
    port = port or free_port()
    quiet = {"STREAMLIT_SERVER_HEADLESS": "true"}  # no browser is opened
    options = {"cwd": ROOT} | options | {"env": options.get("env", os.environ) | quiet}
    return serving(command or serve_command(port), port, "_stcore/health", **options)


def serve_command(port: int) -> list[str]:
    """The command that `eab app` executes, for this port of this machine."""
    return [sys.executable, "-m", "app.serve", f"--port={port}", "--address=127.0.0.1"]


def free_port() -> int:
    """A port that is not in use."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_until_it_answers(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError("the server ended unexpectedly; run its command by hand to see why")
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:  # also an answer that it is not ready yet
            time.sleep(0.1)
    raise RuntimeError(f"the server does not answer within {PATIENCE} seconds")
