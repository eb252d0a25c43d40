"""The headers of every request and answer: by which name the console is called, and what a browser may do with it."""

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.errors import RequestRefused
from bridge.web.api import problems
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


class Compressed:
    """Compresses what is larger than a packet, unless another site has had the browser ask for it.

    Who chooses what a page repeats of its address, and sees how long the answer is, learns what stands beside it
    (BREACH): a page that comes from elsewhere goes out as it is.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=1_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        site = Headers(scope=scope).get("sec-fetch-site", "none") if scope["type"] == "http" else "none"
        answer = self._compressed if site in ("none", "same-origin") else self._plain
        await answer(scope, receive, send)


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
        name = host_name(host)[:200]
        words = f"This console is not called {name!r}: if it is, set DEADLETTERS_CONSOLE_HOSTS to that."
        if problems.is_here(scope["path"]):
            refusal: Response = problems.response(RequestRefused("misdirected", words))
        else:
            refusal = PlainTextResponse(f"{words}\n", 421)
        await refusal(scope, receive, send)
