"""The explorer as a server of its own, for the tests that talk to it as a browser does."""

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
        command: what starts the server; it must stay the same process.
        port: where the server listens, on this machine.
        health: what it answers as soon as it is there.
        options: for `subprocess.Popen`. What the server writes is dropped if they do not say more.

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
    """What `eab app` becomes, at this port of this machine."""
    serve = [sys.executable, "-m", "app.serve"]
    return [*serve, f"--port={port}", "--address=127.0.0.1"]


def free_port() -> int:
    """A port that nobody listens on."""
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
