"""The command `eab app`: Streamlit with the page, in place of this process."""

import os
import subprocess
import sys
from typing import Annotated, NoReturn

import typer

from eab.assets import HOME


def open_app(
    port: Annotated[int, typer.Option(help="port of the page")] = 8501,
    store: Annotated[
        str, typer.Option(help="file of the saved runs; off: none (also EAB_STORE)")
    ] = "",
) -> None:
    """Open the explorer in the browser."""
    if store:
        os.environ["EAB_STORE"] = (
            store if store == "off" else os.path.abspath(os.path.expanduser(store))
        )
    # -P: modules come from the environment, never from the folder that the user is in.
    streamlit = [sys.executable, "-P", "-m", "streamlit"]
    _become([*streamlit, "run", str(HOME / "app" / "main.py"), f"--server.port={port}"])


def _become(command: list[str]) -> NoReturn:
    """Replace this process by the command; on Windows, wait for it and end as it ends.

    Windows has no exec: its `os.execv` starts a second process and gives the terminal back.
    """
    if sys.platform != "win32":
        os.execv(command[0], command)
    with subprocess.Popen(command) as child:
        while True:
            try:
                sys.exit(child.wait())
            except KeyboardInterrupt:  # Ctrl-C reaches the child, too, which then ends
                continue
