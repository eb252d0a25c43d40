"""Addresses of Sentinels: the list, and the name of the master."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import kombu
from kombu.utils.url import url_to_parts

SENTINEL: Final = "sentinel"
#: The part of a Sentinel address that names the master, and the transport option of the same name.
MASTER_NAME: Final = "master_name"
_SENTINEL_PORT: Final = 26379


@dataclass(frozen=True)
class SentinelAddress:
    """A list of Sentinels, and the master that they name: `sentinel://one;sentinel://two/0?master_name=mymaster`.

    Attributes:
        user, password: the master's; the Sentinels' own are in the transport option `sentinel_kwargs`.
        master_name: empty if the address does not name it.
    """

    sentinels: tuple[tuple[str, int], ...]
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    master_name: str = ""


def is_sentinel(url: str) -> bool:
    """Return whether the first address of a URL is that of a Sentinel."""
    return url.strip().lower().startswith(f"{SENTINEL}://")


def parse_sentinel_url(url: str) -> SentinelAddress:
    """Return the parts of a list of Sentinels.

    Raises:
        ValueError: it is invalid, a sentence without values of it.
    """
    try:
        parts = [url_to_parts(each.strip()) for each in url.split(";")]
        databases = {int((each.path or "").strip("/") or 0) for each in parts}
    except ValueError:
        raise ValueError(
            "a port or database is no number: write sentinel://one:26379/0;sentinel://two:26379/0, the password "
            "URL-encoded."
        ) from None
    if any(each.scheme.lower() != SENTINEL or not each.hostname for each in parts):
        raise ValueError("each address of the list must be that of a Sentinel: sentinel://one:26379;sentinel://two.")
    if unknown := sorted({name for each in parts for name in each.query} - {MASTER_NAME}):
        raise ValueError(f"there is no option {unknown[0]!r} for Sentinel: correct or remove it.")
    logins = {(each.username or "", each.password or "") for each in parts}
    names = {each.query[MASTER_NAME] for each in parts if each.query.get(MASTER_NAME)}
    if len(databases) > 1 or len(logins) > 1 or len(names) > 1:
        # kombu takes those of the address that it tries: after a failure of one Sentinel they would be others.
        raise ValueError("user, password, database and master_name must be the same in each address of the list.")
    ((user, password),) = logins
    sentinels = tuple((str(each.hostname), each.port or _SENTINEL_PORT) for each in parts)
    return SentinelAddress(sentinels, databases.pop(), user, password, names.pop() if names else "")


class SentinelUrlConnection(kombu.Connection):
    """kombu's connection, which reads the master's name in a Sentinel address too, not only in the option."""

    def __init__(self, hostname: Any = "localhost", *args: Any, **kwargs: Any) -> None:
        if isinstance(hostname, str) and is_sentinel(hostname) and "?" in hostname:
            name = parse_sentinel_url(hostname).master_name
            hostname = ";".join(each.partition("?")[0] for each in hostname.split(";"))
            options = kwargs.get("transport_options") or {}
            kwargs["transport_options"] = {**options, **({MASTER_NAME: name} if name else {})}
        super().__init__(hostname, *args, **kwargs)
