"""Where the server is and how to log in: settings in the environment of this program.

    EAB_REMOTE=http://127.0.0.1:8080  EAB_REMOTE_KEY=...  eab run ... --model llama.cpp:embedded

No page, link or run file can name a server. The key goes to the server and nowhere else.
"""

import os
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from eab.errors import ModelError
from eab.formatting import quoted

DIALECTS: Final = ("llama.cpp", "vllm")  # the kinds of server, as prefixes of model names
ADDRESS: Final = "EAB_REMOTE"
KEY: Final = "EAB_REMOTE_KEY"


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address and key."""

    url: str  # without a trailing slash
    # The key to send with every request; empty if none is needed. Never shown.
    key: str = field(default="", repr=False)


def is_on_server(model: str) -> bool:
    """Whether this is the name of a model on a server, such as `vllm:NAME`."""
    return model.partition(":")[0] in DIALECTS and ":" in model


def is_allowed() -> bool:
    """Whether the operator has set a server."""
    return bool(os.environ.get(ADDRESS, "").strip())


def configured_address() -> Address:
    """The server that the operator has set; ModelError if there is none."""
    url = os.environ.get(ADDRESS, "").strip()
    if not url:
        raise ModelError(
            f"no server is configured. The operator of this program must set {ADDRESS}, for "
            f"example {ADDRESS}=http://127.0.0.1:8080, and {KEY} if the server requires a key"
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ModelError(
            f"{ADDRESS} is {quoted(url)}; it must be an address such as http://127.0.0.1:8080"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ModelError(
            f"{ADDRESS} contains a user, a question mark or a #; set it to the plain address, "
            f"and {KEY} to the key"
        )
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"{KEY} contains characters that cannot be sent; copy the key again")
    return Address(url.rstrip("/"), key)
