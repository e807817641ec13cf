"""The explorer in JupyterLab's launcher, through jupyter-server-proxy (docs/install.md)."""

import sys
from importlib.util import find_spec
from typing import Any

from eab.assets import ASSETS


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
