"""The commands `eab app`, which replaces this process by the server of the page, and `eab site`,
which writes the explorer as files for any web server; and the entry in JupyterLab's launcher.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from eab.assets import ASSETS, HOME
from eab.errors import need
from eab.formatting import human_bytes


def open_app(
    port: Annotated[
        int, typer.Option(min=1, max=65535, envvar="EAB_PORT", help="Port of the page.")
    ] = 8501,
    address: Annotated[
        str,
        typer.Option(
            help="Network address to listen on. 127.0.0.1: only this machine can open the page. "
            "0.0.0.0: everyone on the network can."
        ),
    ] = "127.0.0.1",
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Open the server to the public: listed models only, limits, no store."
        ),
    ] = False,
    rules: Annotated[
        Path | None, typer.Option(help="TOML file with the rules of the server (also EAB_RULES).")
    ] = None,
    base_path: Annotated[
        str, typer.Option(help="Path of the page behind a reverse proxy, such as eab.")
    ] = "",
    store: Annotated[
        str,
        typer.Option(
            help="File of the saved runs; a file for sweeps is created next to it. off: none "
            "(also EAB_STORE)."
        ),
    ] = "",
) -> None:
    """Open the explorer in the browser; needs the extra `app`."""
    need("app", "streamlit", "starlette", "plotly", "segno")
    if store:
        os.environ["EAB_STORE"] = store if store == "off" else _absolute(store)
    if rules is not None:
        os.environ["EAB_RULES"] = _absolute(str(rules))
    if public:
        os.environ["EAB_PUBLIC"] = "1"
    # -P: import modules from the environment, never from the user's current folder. The folder of
    # `app/` comes first, so that another project's `app` is not imported instead of ours.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    serve = [sys.executable, "-P", "-m", "app.serve"]
    _replace_process([*serve, f"--port={port}", f"--address={address}", f"--base-path={base_path}"])


def _absolute(file: str) -> str:
    return os.path.abspath(os.path.expanduser(file))


def _replace_process(command: list[str]) -> NoReturn:
    """Replace this process by the command; on Windows, wait for it and return its exit code.

    Windows has no exec: `os.execv` there starts a second process and returns to the terminal.
    """
    if sys.platform != "win32":
        os.execv(command[0], command)
    with subprocess.Popen(command) as child:
        while True:
            try:
                sys.exit(child.wait())
            except KeyboardInterrupt:  # Ctrl-C also reaches the child, which then exits
                continue


def site(
    folder: Annotated[Path, typer.Argument(help="Where to write the files.", metavar="DIR")],
) -> None:
    """Write the explorer as static files, for any web server or to open from the disk."""
    from eab.share.site.build import write_site  # loads all recordings

    write_site(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder / 'index.html'} and its pages: {human_bytes(size)}")


def server() -> dict[str, Any]:
    """What jupyter-server-proxy starts and forwards to; it fills in {port} and {base_url}.

    Jupyter checks who asks, and from which site, before it forwards a request. So the explorer sees
    requests of its own machine, and needs no name of the hub among its allowed hosts.
    """
    here = "127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "eab", "app"]
    return {
        "command": [*command, "--port", "{port}", "--base-path", "{base_url}eab-explorer"],
        "environment": {"STREAMLIT_SERVER_HEADLESS": "true"},  # opens no browser on the server
        "timeout": 60,  # seconds until the page must answer
        "absolute_url": True,
        "request_headers_override": {"Host": here, "Origin": f"http://{here}"},
        "launcher_entry": {
            "title": "EAB Explorer",
            "icon_path": str(ASSETS / "icon.svg"),
            "enabled": find_spec("streamlit") is not None,  # the extra `app`
        },
    }
