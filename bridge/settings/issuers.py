"""An issuer of OpenID Connect, as set: where it may be asked, and which values of a claim are which role (pure)."""

from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from bridge.settings.addresses import listed

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
def claimed_roles(text: str) -> Mapping[str, str]:
    """The role of each value of a claim: `admin: sre-leads; operator: sre, payments`.

    Raises:
        ValueError: it says what can mean nothing; names the part.
    """
    found: dict[str, str] = {}
    for part in filter(str.strip, text.split(";")):
        role, colon, values = (each.strip() for each in part.partition(":"))
        if not colon or role not in _ROLES or not listed(values):
            raise ValueError(f"{part.strip()!r} must be a role and its values: `operator: sre, payments`")
        for value in listed(values):
            if value in found:
                raise ValueError(f"{value!r} is named twice")
            found[value] = role
    return found
