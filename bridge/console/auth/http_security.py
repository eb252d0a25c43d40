"""HTTP security: host names, origins of forms (CSRF), redirects, security headers (CSP), compression."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.console.api import problem_details
from bridge.errors import RequestRefused
from bridge.settings.address_values import split_list

_LOCALHOST: Final = "localhost"
#: Characters with which it would parse as more than a name and a port.
_NOT_IN_HOSTS: Final = frozenset("@/?#\\ \t\r\n")


def read_host_name(host: str) -> str:
    """Return the name in a Host header, without its port and in lower case."""
    if _NOT_IN_HOSTS & set(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def list_host_names(said: str, address: str) -> tuple[str, ...]:
    """Return the host names that the console answers to, besides `localhost`.

    Parameters:
        said: the setting, comma-separated names.
        address: the public address of the console; empty if it is not set.
    """
    own = urlsplit(address).hostname
    return (*split_list(said), own) if own else split_list(said)


def is_known_host(host: str, names: Iterable[str]) -> bool:
    """Return whether the console answers to this Host header.

    It answers to `localhost`, IP addresses and configured names. A foreign name that leads to this machine (DNS
    rebinding) would otherwise make another site's pages count as this site.
    """
    name = read_host_name(host)
    return name == _LOCALHOST or _is_address(name) or name in {each.lower() for each in names}


def is_loopback_host(host: str) -> bool:
    """Return whether the Host header names this machine, or a tunnel to it."""
    name = read_host_name(host)
    return name == _LOCALHOST or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def find_form_fault(headers: Headers, names: Iterable[str]) -> str:
    """Return why a form is refused because of the page that sent it; "" if it is accepted.

    A request without Origin and Sec-Fetch-Site is from no current browser; its form token has to suffice.
    """
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "This form was sent by another site."
    origin = headers.get("origin")
    if origin is None:
        return ""
    sent_by, host = origin.partition("://")[2], headers.get("host", "")
    if sent_by.lower() == host.lower() or read_host_name(sent_by) in {each.lower() for each in names}:
        return ""
    return "This form was sent by another site, or by a page of this one under another name."


def is_without_tls(headers: Headers) -> bool:
    """Return whether a form came without TLS from another machine: that browser would keep no session cookie."""
    return headers.get("origin", "").startswith("http://") and not is_loopback_host(headers.get("host", ""))


def choose_redirect_path(then: str) -> str:
    """Return the path to continue at after signing in: a path of this site, or else its first page."""
    fits = then.startswith("/") and not then.startswith(("//", "/sign-")) and len(then) <= 4_000
    return then if fits and all(" " < each < "\x7f" and each != "\\" for each in then) else "/"


#: Content of this server only, no inline scripts or styles, in no frame (CSP level 3).
CONTENT_SECURITY_POLICY: Final = "; ".join(
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
#: The path of the health check.
HEALTH_PATH: Final = "/healthz"
SECURITY_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """A middleware that sets the security headers, and `no-store` unless the answer says otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, sending)


class SafeCompression:
    """A middleware that compresses answers larger than a packet, unless another site caused the request.

    An attacker who chooses what a page repeats of its address and sees the size of the compressed answer learns its
    other content (BREACH). Cross-site answers are therefore not compressed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, minimum_size=1_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        site = Headers(scope=scope).get("sec-fetch-site", "none") if scope["type"] == "http" else "none"
        answer = self._compressed if site in ("none", "same-origin") else self._plain
        await answer(scope, receive, send)


class KnownHostsOnly:
    """A middleware that refuses unknown Host headers, except at the health check.

    Starlette's TrustedHostMiddleware takes no IP address that is not listed, no trailing dot and no exception by
    path. It answers an unknown name with a 400 that does not say what to set, and redirects `example.com` if
    `www.example.com` is known.

    Parameters:
        names: the host names that it answers to, besides `localhost` and IP addresses.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = tuple(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else "localhost"
        # Health checks may use any host name.
        if is_known_host(host, self._names) or scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        name = read_host_name(host)[:200]
        words = f"This console is not called {name!r}: if it is, set DEADLETTERS_CONSOLE_HOSTS to that."
        if problem_details.is_api_path(scope["path"]):
            refusal: Response = problem_details.build_problem_response(RequestRefused("misdirected", words))
        else:
            refusal = PlainTextResponse(f"{words}\n", 421)
        await refusal(scope, receive, send)
