"""The address settings: brokers, the ledger, networks, OpenID Connect issuers; and how they are shown (pure)."""

import re
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.url import url_to_parts

from lossless.sentinel_address import is_sentinel


def is_redis(url: str) -> bool:
    """Return whether a broker URL is of Redis."""
    return url.partition("://")[0].lower().partition("+")[0] in ("redis", "rediss", "sentinel")


#: The supported brokers with the schemes of their URLs; kombu knows others, which lose deliveries.
BROKERS: Final = {
    "Redis": ("redis", "rediss", "redis+socket"),
    "Redis with Sentinel": ("sentinel",),
    "RabbitMQ": ("amqp", "amqps", "pyamqp"),
}


def find_unsupported_broker(urls: str) -> str | None:
    """Return the scheme of the first unsupported broker URL in a list; None if all are supported.

    The scheme is empty if kombu knows none like it: then it may be a part of a password.
    """
    schemes = [scheme for names in BROKERS.values() for scheme in names]
    given = [url.strip().partition(":")[0].lower() for url in urls.split(";") if url.strip()]
    wrong = next((scheme for scheme in given if scheme not in schemes), None)
    return wrong if wrong is None or wrong.partition("+")[0] in TRANSPORT_ALIASES else ""


def holds_ledger(url: str) -> bool:
    """Return whether a URL is of one Redis: a server, or the master that Sentinels name. A list of servers is not."""
    if is_sentinel(url):
        return True
    try:
        parts = urlsplit(url)
        # Read here: a port that is no number raises an error when it is read.
        return parts.scheme in ("redis", "rediss", "redis+socket") and ";" not in url and parts.port != 0
    except ValueError:
        return False


def has_login(address: str) -> bool:
    """Return whether one address has a user or a password of its own; an invalid one, which is a fault, has none."""
    try:
        parts = url_to_parts(address.strip())
    except ValueError:
        return False
    return bool(parts.username or parts.password or {"username", "password"} & parts.query.keys())


def hide_password(address: str) -> str:
    """Return an address for a log, without what precedes the last `@` but its scheme, and without `password=`.

    A list is hidden address by address. A `;` without a scheme behind it may be a part of a password.
    """
    parts = _NEXT_ADDRESS.split(address)
    hidden = (re.sub(r"(?s)^(\s*[A-Za-z][\w+.-]*:/{1,2})?.*@", r"\1…@", part) for part in parts)
    return _hide_option(";".join(hidden))


def hide_passwords_in(text: str) -> str:
    """Return an error's text for a log, with the addresses in it as `hide_password` returns them."""
    parts = _NEXT_ADDRESS.split(text)
    return _hide_option(";".join(re.sub(r"(?s)(:/{1,2}).*@", r"\1…@", part) for part in parts))


_NEXT_ADDRESS: Final = re.compile(r";(?=\s*[A-Za-z][\w+.-]*://)")


def _hide_option(text: str) -> str:
    return re.sub(r"(?i)(password=)[^&]*", r"\1…", text)


def split_list(text: str) -> tuple[str, ...]:
    """Return the items between commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def read_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return addresses and networks from a list with commas, `10.0.0.7, 192.168.0.0/24`.

    Raises:
        ValueError: one is invalid, or includes every address.
    """
    found = tuple(map(ip_network, split_list(text)))
    if any(each.prefixlen == 0 for each in found):
        raise ValueError("this is every address")
    return found


_ROLES: Final = ("viewer", "operator", "admin")


def may_be_asked(address: str) -> bool:
    """Return whether secrets may be sent to this address: over TLS, or to this machine."""
    if not address.isascii() or not address.isprintable() or set(address) & set(" ?#@\\"):
        return False
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_here(host)))


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def read_claimed_roles(text: str) -> Mapping[str, str]:
    """Return the role of each value of a claim, from `admin: sre-leads; operator: sre, payments`.

    Raises:
        ValueError: a part is invalid; the message names it.
    """
    found: dict[str, str] = {}
    for part in filter(str.strip, text.split(";")):
        role, colon, values = (each.strip() for each in part.partition(":"))
        if not colon or role not in _ROLES or not split_list(values):
            raise ValueError(f"{part.strip()!r} must be a role and its values: `operator: sre, payments`")
        for value in split_list(values):
            if value in found:
                raise ValueError(f"{value!r} is named twice")
            found[value] = role
    return found
