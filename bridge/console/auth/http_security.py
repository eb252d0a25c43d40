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
#: With these it would be read as more than a name and a port.
_NOT_IN_HOSTS: Final = frozenset("@/?#\\ \t\r\n")


def read_host_name(host: str) -> str:
    """The name in a Host header: without its port, in lower case."""
    if _NOT_IN_HOSTS & set(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def list_host_names(said: str, address: str) -> tuple[str, ...]:
    """By which names the console answers, besides `localhost` and addresses.

    Parameters:
        said: what is set, with commas between them.
        address: where browsers find the console, as its messages link to it; empty where it is not set.
    """
    own = urlsplit(address).hostname
    return (*split_list(said), own) if own else split_list(said)


def is_known_host(host: str, names: Iterable[str]) -> bool:
    """Whether the console is called by this Host header.

    By `localhost`, an address, or a name that it was given: a page of another site can make a name of its own lead to
    this machine (DNS rebinding), and would then be taken for this site.
    """
    name = read_host_name(host)
    return name == _LOCALHOST or _is_address(name) or name in {each.lower() for each in names}


def is_loopback_host(host: str) -> bool:
    """Whether a browser that says this Host header is on this machine (or in a tunnel to it)."""
    name = read_host_name(host)
    return name == _LOCALHOST or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def find_form_fault(headers: Headers, names: Iterable[str]) -> str:
    """Why a form is not taken from the page that sent it; "" where it is.

    What neither says an origin nor how it was sent is no browser of these years; the form's token has to do.
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
    """Whether a browser says that it sent a form without TLS, and not on this machine: it would keep no session."""
    return headers.get("origin", "").startswith("http://") and not is_loopback_host(headers.get("host", ""))


def choose_redirect_path(then: str) -> str:
    """Where to go on after signing in: a path of this site, else its first page."""
    fits = then.startswith("/") and not then.startswith(("//", "/sign-")) and len(then) <= 4_000
    return then if fits and all(" " < each < "\x7f" and each != "\\" for each in then) else "/"


#: Nothing but what this server sends, no script or style in the page, in no frame (WHATWG, CSP level 3).
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
#: Where it says that it is alive.
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
    """Puts them on every answer; what does not say how long it may be kept is not kept: it shows payloads."""

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


class KnownHostsOnly:
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
