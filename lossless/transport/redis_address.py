"""The check of a Redis address by Redis's client itself, before anything is connected."""

import re

import redis


def find_redis_fault(url: str) -> str | None:
    """Return why Redis's client does not take a URL, without values of it; None if it does. Nothing is connected."""
    if not url.startswith(("redis://", "rediss://")):
        return "this is no address of Redis: write redis://:password@host:6379/0, the password URL-encoded."
    try:
        redis.Redis.from_url(url).connection_pool.make_connection()
    except (TypeError, ValueError, redis.RedisError) as error:
        if unknown := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
            return f"there is no option {unknown[1]!r} for this kind of address: correct or remove it."
        if invalid := re.match(r"Invalid value for '(\w+)' in", str(error)):
            return f"the value of {invalid[1]!r} is invalid: correct or remove it."
        if "SSL Certificate Requirements" in str(error):
            return "the value of 'ssl_cert_reqs' is invalid: write required, optional or none."
        return "an option is invalid, or the password is not URL-encoded: write redis://:password@host:6379/0."
    return None
