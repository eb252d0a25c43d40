"""The commands that a Redis user must be allowed on the ledger's keys, and the check of a user."""

from typing import Final

from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from lossless.transport.redis_permissions import find_refused

#: The page that lists what the ledger needs, with what the transport does.
NEEDED: Final = "docs/how-to/redis-servers.md"
#: All of them take the key first.
LEDGER_COMMANDS: Final = (
    *("BITFIELD", "DEL", "EXISTS", "EXPIRE", "GET", "GETRANGE", "INCR", "PERSIST", "PTTL", "SET", "SETRANGE"),
    *("HDEL", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HMGET", "HSET", "HSETNX"),
    *("LPUSH", "LRANGE", "LTRIM", "SADD", "SMEMBERS", "SREM", "XADD", "XREVRANGE"),
    *("ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZREMRANGEBYRANK"),
    *("ZREMRANGEBYSCORE", "ZSCORE"),
)


def find_refused_fates(ledger: Ledger) -> str | None:
    """Return a sentence that says what of the ledger's keys this Redis user may not do; `None` if nothing.

    Raises:
        LedgerUnavailable: Redis is unavailable, or refuses to run scripts.
    """
    asked = [(command, ledger_key("check")) for command in LEDGER_COMMANDS]
    return find_refused(
        lambda script, keys, args: ledger.run("check what it may do", script, keys, args), asked, NEEDED
    )
