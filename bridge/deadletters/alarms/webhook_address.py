"""The addresses that webhooks may be sent to.

Public addresses are allowed over HTTPS. Private ones are allowed only if DEADLETTERS_WEBHOOK_NETWORKS names their
network. The check is made on the address that is connected to, each time.
"""

import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from bridge.errors import WebhookRefused

if TYPE_CHECKING:
    from bridge.bounded_request import Where

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The allocated public part of IPv6 (RFC 4291, 2.4): all else (site-local, mapped IPv4) may be private.
_PUBLIC: Final = ipaddress.IPv6Network("2000::/3")
#: The part of it that leads to any IPv4 address (6to4, Teredo).
_TRANSLATED: Final = tuple(map(ipaddress.IPv6Network, ("2002::/16", "2001::/32")))
#: IPv4 networks that some versions of Python call global: protocol assignments, and 6to4 relays.
_SPECIAL: Final = tuple(map(ipaddress.IPv4Network, ("192.0.0.0/24", "192.88.99.0/24")))
_LONGEST: Final = 2_000
#: Allowed ports of public hosts: those of the web.
_WEB: Final = frozenset((80, 443, 8000, 8008, 8080, 8081, 8088, 8443, 8888, 9443))
_REFUSED_HIGH: Final = """
1080 1433 1521 1719 1720 1723 2049 2181 2375 2376 2379 2380 3306 3389 3659 4045 4190 5060 5061 5432 5671 5672 5900
6000 6379 6380 6566 6665 6666 6667 6668 6669 6679 6697 9042 9092 10080 11211 26379 27017
"""
#: Ports that are refused in private networks too: those below 1024 that are not of the web, usual ones of databases,
#: queues and the like, and those that browsers refuse (Fetch, "bad port"). docs/how-to/webhooks.md lists them.
REFUSED_PORTS: Final = frozenset({*range(1024), *map(int, _REFUSED_HIGH.split())} - _WEB)


class WebhookTarget(NamedTuple):
    """A parsed web address; its repr does not show the part that may be a secret.

    Attributes:
        path: with the query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """Return the address for people, without the path: for Slack and others it is a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.scheme == "https" else 80)
        return f"{self.scheme}://{host}{'' if usual else f':{self.port}'}"

    def __repr__(self) -> str:
        """Return the target without the path."""
        return f"Target({self.shown})"


def parse_target(address: str, allowed: Sequence[Network]) -> WebhookTarget:
    """Return the parsed address.

    Parameters:
        allowed: the private networks that are allowed.

    Raises:
        WebhookRefused: it is invalid, or never allowed. The message does not repeat it.
    """
    address = address.strip()
    if not address.isascii() or not address.isprintable() or " " in address or len(address) > _LONGEST:
        raise WebhookRefused("The address must be a URL of visible ASCII characters, 2,000 at most.")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise WebhookRefused("The address is no URL: https://host/path.") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise WebhookRefused("The address must begin with https:// and name a host.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise WebhookRefused("The address must have no user, no password and no #.")
    if parts.scheme == "http" and not allowed:
        raise WebhookRefused(
            "http:// is allowed only to networks in DEADLETTERS_WEBHOOK_NETWORKS. Use https://, or add the network."
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = WebhookTarget(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path)
    if target.port in REFUSED_PORTS:
        raise WebhookRefused(f"Port {target.port} is refused. Use 443.")
    with suppress(ValueError):
        _require_allowed(target, ipaddress.ip_address(target.host), allowed)
    return target


def resolve_target(target: WebhookTarget, allowed: Sequence[Network]) -> "list[Where]":
    """Return the addresses of a host, all of which are allowed.

    Raises:
        WebhookRefused: it has none, or one that is not allowed.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise WebhookRefused(f"the host {target.host} is not found") from None
    addresses: list[Where] = [(family, (str(where[0]), int(where[1]))) for family, _, _, _, where in found]
    for _, (host, _) in addresses:
        _require_allowed(target, ipaddress.ip_address(host.partition("%")[0]), allowed)
    return addresses


def _require_allowed(target: WebhookTarget, address: Address, allowed: Sequence[Network]) -> None:
    meant = getattr(address, "ipv4_mapped", None) or address
    if any(meant in network for network in allowed):
        return
    if target.scheme == "http":
        raise WebhookRefused(
            f"{target.shown} has no TLS (https://), and is in no network of DEADLETTERS_WEBHOOK_NETWORKS"
        )
    if not _is_public(meant):
        raise WebhookRefused(
            f"{target.shown} is not public: if it is yours, name its network in DEADLETTERS_WEBHOOK_NETWORKS"
        )
    if target.port not in _WEB:
        raise WebhookRefused(
            f"{target.shown} is public, and its port is not allowed there: use 443, or add its network to "
            "DEADLETTERS_WEBHOOK_NETWORKS"
        )


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast:
        return False
    if address.version == 4:
        return not any(address in network for network in _SPECIAL)
    return address in _PUBLIC and not any(address in network for network in _TRANSLATED)
