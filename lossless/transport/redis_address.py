"""The check of a Redis address by Redis's client itself, before anything is connected."""

import re
from collections.abc import Mapping
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lossless.sentinel_address import MASTER_NAME, is_sentinel, parse_sentinel_url

_SOCKET: Final = "redis+socket://"


def to_client_url(url: str) -> str:
    """Return the URL of one server as Redis's client writes it; kombu writes a socket's otherwise."""
    if url.startswith(_SOCKET):
        return "unix://" + url.removeprefix(_SOCKET).replace("virtual_host=", "db=")
    return url


def make_sentinel_options(
    given: Mapping[str, Any] | None, timeout: float | None, connect_timeout: float | None
) -> dict[str, Any]:
    """Return the options of connections to Sentinels: one that is down is asked once, and then the next.

    redis-py would try it four times with growing pauses, at each new connection to the master.
    """
    options = {"socket_timeout": timeout, "socket_connect_timeout": connect_timeout, "retry": Retry(NoBackoff(), 0)}
    return {**options, **(given or {})}


def find_redis_fault(url: str, options: Mapping[str, Any] | None = None) -> str | None:
    """Return why Redis's client does not take a URL, without values of it; None if it does. Nothing is connected.

    Parameters:
        options: the transport options, which may name the master of Sentinels.
    """
    if is_sentinel(url):
        return _find_sentinel_fault(url, options or {})
    if not url.startswith(("redis://", "rediss://", _SOCKET)):
        return "this is no address of Redis: write redis://:password@host:6379/0, the password URL-encoded."
    try:
        redis.Redis.from_url(to_client_url(url)).connection_pool.make_connection()
    except (TypeError, ValueError, redis.RedisError) as error:
        if unknown := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
            return f"there is no option {unknown[1]!r} for this kind of address: correct or remove it."
        if invalid := re.match(r"Invalid value for '(\w+)' in", str(error)):
            return f"the value of {invalid[1]!r} is invalid: correct or remove it."
        if "SSL Certificate Requirements" in str(error):
            return "the value of 'ssl_cert_reqs' is invalid: write required, optional or none."
        return "an option is invalid, or the password is not URL-encoded: write redis://:password@host:6379/0."
    return None


def _find_sentinel_fault(url: str, options: Mapping[str, Any]) -> str | None:
    try:
        address = parse_sentinel_url(url)
    except ValueError as error:
        return str(error)
    if address.master_name or options.get(MASTER_NAME):
        return None
    return (
        "Sentinels are asked for a master by its name: add ?master_name=mymaster to the address, or set "
        "broker_transport_options['master_name']."
    )
