"""The explorer as a server: `python -m app.serve`, started by `eab app`.

The server's rules are checked first. Then Streamlit serves app/main.py, with headers and /healthz
around it.
"""

import argparse
import logging
import socket
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from app.server import rules
from eab.errors import EabError
from eab.formatting import quoted

EVERYWHERE: Final = ("0.0.0.0", "::")
_WEBSOCKETS: Final = "streamlit.web.server.starlette.starlette_websocket"  # a Streamlit logger


def main() -> None:
    """Serve until the process is told to stop."""
    asked = _arguments()
    try:
        allowed = rules.current()
    except EabError as error:
        sys.exit(f"Error: {error}")
    _check_address(asked.address)
    logging.getLogger(_WEBSOCKETS).addFilter(_without_traceback)
    if not (allowed.public or _is_this_machine(asked.address)):
        print(_what_strangers_may_do(asked.address), file=sys.stderr)
    if allowed.public:
        print(_what_is_allowed(allowed), file=sys.stderr)
    _application(asked).run(config=_streamlit_options(asked, allowed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eab app")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--base-path", default="")
    return parser.parse_args()


def _check_address(address: str) -> None:
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listening:
            listening.bind(place)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        sys.exit(
            f"Error: the address is {quoted(address)}; this machine cannot listen there ({why}). "
            "Use 127.0.0.1 for this machine only, 0.0.0.0 for everyone on its networks, or one "
            "of its own addresses"
        )


def _without_traceback(record: logging.LogRecord) -> bool:
    """Log bad WebSocket messages without a traceback, because only strangers send them."""
    if record.levelno <= logging.WARNING:
        record.exc_info = None
    return True


def _application(asked: argparse.Namespace) -> Any:
    import streamlit as st
    from starlette.middleware import Middleware
    from starlette.routing import Route

    from app.server import http

    answers = {
        "healthz": http.health,
        f"{http.FOLDER}/{{name}}": http.board_file,
    }
    http.is_served = True
    behind_a_proxy = f"/{asked.base_path.strip('/')}".rstrip("/")
    return st.App(
        Path(__file__).with_name("main.py"),
        routes=[
            Route(f"{prefix}/{name}", answer)
            for prefix in {"", behind_a_proxy}
            for name, answer in answers.items()
        ],
        middleware=[
            Middleware(http.SecurityHeaders),
            Middleware(http.ClosedTabs),
            Middleware(http.StyledPage),
            Middleware(http.UnusedEndpoints),
            Middleware(http.KnownHosts, only_this_machine=_is_this_machine(asked.address)),
        ],
    )


def _streamlit_options(asked: argparse.Namespace, allowed: rules.Rules) -> dict[str, Any]:
    options: dict[str, Any] = {
        "server.port": asked.port,
        "server.address": asked.address,
        "server.baseUrlPath": asked.base_path,
        "server.maxUploadSize": allowed.upload_mib,
        # No page needs magic, and it parses the pages, which in Python 3.11 may fail while another
        # thread parses something (github.com/python/cpython/issues/106905).
        "runner.magicEnabled": False,
    }
    if allowed.is_embedded:
        options["server.xsrfCookieSameSite"] = "none"  # see http.SecurityHeaders
    if allowed.public:
        # Open no browser, and show no tracebacks.
        options |= {"server.headless": True, "client.showErrorDetails": "none"}
    return options


def _is_this_machine(address: str) -> bool:
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def _what_strangers_may_do(address: str) -> str:
    where = "all networks of this machine" if address in EVERYWHERE else address
    return (
        f"The explorer listens on {where}. Everyone who can reach it can run any model in a "
        "folder of this machine or on the Hugging Face Hub, fill its memory, and see, rename "
        "and delete the saved runs. This is fine on a network that you trust. For the public, "
        "add --public."
    )


def _what_is_allowed(allowed: rules.Rules) -> str:
    return (
        f"Public server. Models: {', '.join(allowed.models) or 'any'}. A run has at most "
        f"{allowed.max_paths:,} paths, {allowed.max_new_tokens:,} new tokens each, and "
        f"{allowed.max_prompt_tokens:,} tokens of prompt; a visitor has at most "
        f"{allowed.runs_per_visitor:,} runs at a time and {allowed.seconds_per_hour:,} s per hour. "
        f"Runs {'can' if allowed.save_runs else 'cannot'} be saved on the server. "
        f"To change this, set {rules.FILE_VARIABLE} to a file with other rules."
    )


if __name__ == "__main__":
    main()
