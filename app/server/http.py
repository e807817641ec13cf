"""What this server answers beside the page: headers of every response, its health, and its metrics.

Knows nothing of Streamlit.
"""

import hmac
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server import metrics
from app.server.rules import Rules, current

# Streamlit evaluates code, puts styles into the page, and runs components from blob addresses.
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; "
    "font-src 'self' data:; "
    "connect-src 'self'; "
    "worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors {ancestors}"
)


def security_headers(rules: Rules) -> dict[str, str]:
    """The headers that every response has: the browser asks nobody but this server."""
    policy = _CONTENT_SECURITY_POLICY.format(ancestors=rules.frame_ancestors)
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }


class SecurityHeaders:
    """ASGI middleware that adds the headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = security_headers(current())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


async def health(_request: Request) -> Response:
    """Answer `ok` while the process serves."""
    return PlainTextResponse("ok\n")


async def prometheus(request: Request) -> Response:
    """The metrics for Prometheus, for those who send the key of the rules as a bearer token."""
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not is_key(given):
        return PlainTextResponse("not found\n", status_code=404)
    return Response(metrics.exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def is_key(given: str) -> bool:
    """Whether this is the key of the rules; never if there is none."""
    key = current().key
    return bool(key) and hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())
