"""By which names the console answers, and from which pages it takes forms (pure)."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from bridge.settings.addresses import listed

_HERE: Final = "localhost"
#: With these it would be read as more than a name and a port.
_NOT_IN_HOSTS: Final = frozenset("@/?#\\ \t\r\n")


def host_name(host: str) -> str:
    """The name in a Host header: without its port, in lower case."""
    if _NOT_IN_HOSTS & set(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def names(said: str, address: str) -> tuple[str, ...]:
    """By which names the console answers, besides `localhost` and addresses.

    Parameters:
        said: what is set, with commas between them.
        address: where browsers find the console, as its messages link to it; empty where it is not set.
    """
    own = urlsplit(address).hostname
    return (*listed(said), own) if own else listed(said)


def answers_to(host: str, names: Iterable[str]) -> bool:
    """Whether the console is called by this Host header.

    By `localhost`, an address, or a name that it was given: a page of another site can make a name of its own lead to
    this machine (DNS rebinding), and would then be taken for this site.
    """
    name = host_name(host)
    return name == _HERE or _is_address(name) or name in {each.lower() for each in names}


def is_here(host: str) -> bool:
    """Whether a browser that says this Host header is on this machine (or in a tunnel to it)."""
    name = host_name(host)
    return name == _HERE or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def form_fault(headers: Headers, names: Iterable[str]) -> str:
    """Why a form is not taken from the page that sent it; "" where it is.

    What neither says an origin nor how it was sent is no browser of these years; the form's token has to do.
    """
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "This form was sent by another site."
    origin = headers.get("origin")
    if origin is None:
        return ""
    sent_by, host = origin.partition("://")[2], headers.get("host", "")
    if sent_by.lower() == host.lower() or host_name(sent_by) in {each.lower() for each in names}:
        return ""
    return "This form was sent by another site, or by a page of this one under another name."


def is_plain(headers: Headers) -> bool:
    """Whether a browser says that it sent a form without TLS, and not on this machine: it would keep no session."""
    return headers.get("origin", "").startswith("http://") and not is_here(headers.get("host", ""))


def way(then: str) -> str:
    """Where to go on after signing in: a path of this site, else its first page."""
    fits = then.startswith("/") and not then.startswith(("//", "/sign-")) and len(then) <= 4_000
    return then if fits and all(" " < each < "\x7f" and each != "\\" for each in then) else "/"
