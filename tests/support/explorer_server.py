"""The explorer as a separate server, for tests that talk to it as a browser does."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def serving(
    command: list[str], port: int, health: str = "_stcore/health", **options: Any
) -> Iterator[tuple[str, int]]:
    """Run the command that serves the explorer at this port.

    Args:
        command: starts the server, which must stay in the same process.
        port: the port on this machine where the server listens.
        health: a path that the server answers as soon as it is up.
        options: for `subprocess.Popen`. The output of the server is discarded by default.

    Yields:
        The address of the explorer and the id of its process.
    """
    quiet = {"STREAMLIT_SERVER_HEADLESS": "true"}  # no browser is opened
    environment = options.pop("env", os.environ) | quiet
    dropped = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=environment, **(dropped | options))
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_it_answers(f"{address}/{health}", server)
        yield address, server.pid
    finally:
        server.terminate()
        server.wait(timeout=120)


def serve_command(port: int) -> list[str]:
    """The command that `eab app` executes, for this port of this machine."""
    serve = [sys.executable, "-m", "app.serve"]
    return [*serve, f"--port={port}", "--address=127.0.0.1"]


def free_port() -> int:
    """A port that is not in use."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_until_it_answers(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended unexpectedly"
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server does not answer")
