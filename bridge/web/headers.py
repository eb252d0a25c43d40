"""The headers of every request and answer: by which name the console is called, and what a browser may do with it."""

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.web.origins import answers_to, host_name

#: Nothing but what this server sends, no script or style in the page, in no frame (WHATWG, CSP level 3).
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
#: Where it says that it is alive.
ALIVE: Final = "/healthz"
ALWAYS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Puts them on every answer; what does not say how long it may be kept is not kept: it shows payloads."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(ALWAYS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, sending)


class KnownHosts:
    """Answers nothing to who calls the console by a name that is not its own, but that it is alive.

    Parameters:
        names: by which it is called, besides `localhost` and addresses.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = tuple(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else "localhost"
        # Probes call it by whatever name they have for it.
        if answers_to(host, self._names) or scope["path"] == ALIVE:
            await self._app(scope, receive, send)
            return
        words = (
            f"This console is not called {host_name(host)[:200]!r}: if it is, set DEADLETTERS_CONSOLE_HOSTS to that.\n"
        )
        await PlainTextResponse(words, 421)(scope, receive, send)
