"""The permissions that the transport's Redis user needs, and those that its ACL refuses.

An ACL that forbids a command inside a script is answered with an error that names neither the command nor the key.
Redis 7 can be asked (``redis.acl_check_cmd``); before, there is only that error.
"""

from __future__ import annotations

from collections.abc import Iterable

import redis
from kombu.log import get_logger

from lossless.transport.inflight_messages import RunScript
from lossless.transport.redis_outage import describe_redis_error
from lossless.transport.storage_layout import TransportKeys
from lossless.transport.transport_scripts import CHECK_PERMISSIONS

logger = get_logger("lossless.transport")

#: The page that lists what the transport needs.
NEEDED = "docs/concepts/lossless.md"

HASH = ("DEL", "EXISTS", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HSET")
LIST = ("BRPOP", "EXISTS", "LINDEX", "LLEN", "LMOVE", "LPUSH", "RPOP", "RPUSH")
ASIDE = ("DEL", "EXISTS", "LINDEX", "LLEN", "LMOVE", "RPOP")
GATES = ("EXISTS", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HSET")
WAITING = ("EXISTS", "ZADD", "ZRANGEBYSCORE", "ZREM", "ZSCORE")
IDLE = ("EXISTS", "ZADD", "ZCARD", "ZCOUNT", "ZRANGEBYSCORE", "ZREM", "ZREMRANGEBYSCORE")
QUEUES = ("EXISTS", "SADD", "SMEMBERS", "SREM")
NOTIFIER = ("DEL", "EXISTS", "GET", "SET")
KEYLESS = ("INFO", "PING", "PUBLISH", "TIME")

#: The words of a script's error about a refusal: before Redis 7, in Redis 7.0, and in Redis 7.2 and Valkey.
REFUSAL_SIGNS = (
    "NOPERM",
    "can't run this command",
    "can't access at least one of the keys",
    "ACL failure in script",
)


def is_refusal(error: BaseException) -> bool:
    """Return whether an error is a refusal by the ACL."""
    if isinstance(error, redis.exceptions.NoPermissionError):
        return True
    return isinstance(error, redis.ResponseError) and any(sign in str(error) for sign in REFUSAL_SIGNS)


def list_needed_permissions(keys: TransportKeys, lists: Iterable[str]) -> list[tuple[str, str]]:
    """Return each needed command with each of its keys; ``lists`` are the full keys of queues."""
    on: list[tuple[tuple[str, ...], str]] = [
        (KEYLESS, ""),
        (HASH, keys.owners),
        (HASH, keys.taken("owner")),
        (QUEUES, keys.waiting_queues),
        (WAITING, keys.waiting("queue")),
        (("EXISTS", "LPUSH"), keys.undecodable),
        (GATES, keys.gates),
        (QUEUES, keys.aside),
        (ASIDE, keys.aside_of("list")),
        (QUEUES, keys.idle_queues),
        (IDLE, keys.idle("queue")),
        (NOTIFIER, keys.notifier),
        *((LIST, key) for key in lists),
    ]
    return [(command, key) for commands, key in on for command in commands]


def describe_refusal(asked: list[tuple[str, str]], refused: Iterable[int], page: str = NEEDED) -> str | None:
    """Return a sentence that says what to allow, or None if nothing is refused.

    A key on which every command is refused is named alone, and so is a command that is refused on all others.

    Parameters:
        page: lists what is needed.
    """
    wrong = {asked[place] for place in refused}
    keys = {key for _, key in wrong if key} - {key for command, key in asked if (command, key) not in wrong}
    others = [pair for pair in asked if pair[1] not in keys]
    commands = {command for command, key in wrong if key not in keys}
    commands -= {command for command, key in others if (command, key) not in wrong}
    rest = {f"{command} on {key}" for command, key in wrong if command not in commands and key not in keys}
    parts = (("commands", commands), ("keys", keys), ("", rest))
    named = "; ".join(f"{name} {', '.join(sorted(some))}".strip() for name, some in parts if some)
    if not named:
        return None
    return f"this Redis user is refused: {named}. Allow it (ACL SETUSER; {page} lists what is needed)"


def find_refused(run: RunScript, asked: list[tuple[str, str]], page: str = NEEDED) -> str | None:
    """Return a sentence that says which of these commands on these keys the user is refused, or None.

    Parameters:
        run: calls a script, raises redis-py's errors.
        page: lists what is needed.
    """
    try:
        refused = run(CHECK_PERMISSIONS, [], [part for pair in asked for part in pair])
    except redis.ResponseError as error:
        return f"it could not be asked what is refused: {error}" if is_refusal(error) else None
    return describe_refusal(asked, map(int, refused), page)


class RedisPermissions:
    """The permissions of one Redis user.

    Parameters:
        keys: the names of the keys.
        run: calls a script, raises redis-py's errors.
    """

    def __init__(self, keys: TransportKeys, run: RunScript) -> None:
        self.keys = keys
        self._run = run
        self._lists: set[str] = set()
        self._named: set[str] = set()

    def check(self, lists: Iterable[str]) -> None:
        """Log once what is refused; ``lists`` are the keys of a consumed queue."""
        self._lists.update(lists)
        if (wrong := self._refused()) and wrong not in self._named:
            self._named.add(wrong)
            logger.error("Redis: %s", wrong)

    def explained(self, error: Exception) -> str:
        """Return an error as text; if the ACL refuses something, say what: that is no outage, and does not pass."""
        words = describe_redis_error(error)
        return f"{words} ({self._refused()})" if is_refusal(error) else words

    def _refused(self) -> str | None:
        return find_refused(self._run, list_needed_permissions(self.keys, sorted(self._lists)))
