"""A separate Jupyter server, for the tests that open a notebook in it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import ROOT

from eab.models.sources import EMBEDDED_FOLDER
from scripts.servers import free_port, serving


@contextmanager
def serving_notebooks(folder: Path, *options: str) -> Iterator[str]:
    """Run JupyterLab with separate settings, on the embedded model; yields its address. The test is
    skipped if it is not installed.

    Args:
        folder: The working folder, which also holds what the server writes.
        options: Command-line options; `{port}` stands for the port.
    """
    pytest.importorskip("jupyterlab")
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", *(one.format(port=port) for one in options)]
    homes = [f"XDG_{name}_HOME" for name in ("CONFIG", "STATE", "CACHE", "DATA")]
    homes += [f"JUPYTER_{name}_DIR" for name in ("CONFIG", "DATA", "RUNTIME")]
    homes += [f"JUPYTERLAB_{name}_DIR" for name in ("SETTINGS", "WORKSPACES")]
    own = {name: str(folder / ".own" / name) for name in homes}
    own |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with serving(command, port, "api", env=os.environ | own, cwd=folder) as (address, _):
        yield address
