"""Addresses as they are set: supported brokers, the ledger, networks, and an OpenID Connect issuer with the roles of
its claims; and how addresses are shown without passwords (pure).
"""

import re
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit


def is_redis(url: str) -> bool:
    """Whether a broker URL is one of Redis."""
    return url.partition("://")[0].lower().partition("+")[0] in ("redis", "rediss", "sentinel")


#: The brokers that are supported, by the schemes of their URLs; kombu knows others, which lose deliveries.
BROKERS: Final = {
    "Redis": ("redis", "rediss", "redis+socket"),
    "Redis with Sentinel": ("sentinel",),
    "RabbitMQ": ("amqp", "amqps", "pyamqp"),
}


def find_unsupported_broker(urls: str) -> str | None:
    """The scheme of a broker URL, or of one in a list, that is not of a broker which is supported; None if all are."""
    schemes = [scheme for names in BROKERS.values() for scheme in names]
    given = [url.strip().partition(":")[0].lower() for url in urls.split(";") if url.strip()]
    return next((scheme for scheme in given if scheme not in schemes), None)


def holds_ledger(url: str) -> bool:
    """Whether a URL is that of one Redis; a list of several, or Sentinel, is for the broker alone."""
    try:
        parts = urlsplit(url)
        # Read here: a port that is no number is an error when it is read.
        return parts.scheme in ("redis", "rediss") and ";" not in url and parts.port != 0
    except ValueError:
        return False


def hide_password(url: str) -> str:
    """A URL fit for a log: whatever stands before each `@` is left out, and a `password=` behind it."""
    hidden = ";".join(re.sub(r"//.*@", "//…@", part) for part in url.split(";"))
    return re.sub(r"(password=)[^&]*", r"\1…", hidden)


def split_list(text: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def read_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks, with commas between them: `10.0.0.7, 192.168.0.0/24`.

    Raises:
        ValueError: one is none, or is every address there is.
    """
    found = tuple(map(ip_network, split_list(text)))
    if any(each.prefixlen == 0 for each in found):
        raise ValueError("this is every address")
    return found


_ROLES: Final = ("viewer", "operator", "admin")


def may_be_asked(address: str) -> bool:
    """Whether secrets may be sent to this address: over TLS, or to this machine."""
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
    """The role of each value of a claim: `admin: sre-leads; operator: sre, payments`.

    Raises:
        ValueError: it says what can mean nothing; names the part.
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
