"""The connection to the ledger's Redis: the only importer of its client in the bridge."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis
from kombu.transport.redis import SentinelManagedSSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from bridge.errors import LedgerCannotFsync, LedgerNotSynced, LedgerUnavailable
from bridge.settings import RedisAccess
from lossless.lua import Script
from lossless.sentinel_address import MASTER_NAME, is_sentinel, parse_sentinel_url
from lossless.transport.redis_address import make_sentinel_options, to_client_url
from lossless.transport.redis_outage import advise_redis_error, make_leaving_class
from lossless.transport.redis_permissions import is_refusal

_ADVICE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (redis.AuthenticationError, "check the user and password in {named}"),
    (redis.ReadOnlyError, "it is a replica: point {named} at the primary"),
    (redis.ConnectionError, "start it or fix the network"),
    (redis.TimeoutError, "see what keeps it busy (SLOWLOG GET)"),
)

make_sentinel: Any = Sentinel  # redis-py has no types for it

_REFUSED: Final = "allow this Redis user what it was refused (ACL SETUSER)"


class RedisConnection:
    """The connection to a Redis server; each error of its client becomes a LedgerUnavailable that says what to do.

    Parameters:
        url: where Redis is (``redis://``, ``rediss://``, ``unix://``, kombu's ``redis+socket://``), or its Sentinels
            (``sentinel://``, several with ``;``).
        timeout: seconds to wait for an answer.
        named: the variable that `url` was set by, for errors.
        patient: whether a request without an answer in time is sent once more.
        access: how it is reached, beside the address.

    Attributes:
        where: host and port, or path, without the password; of Sentinels the master's name and their addresses.
        lost: how many connections were lost so far.

    Raises:
        ValueError: `url` is no Redis address.
    """

    def __init__(
        self, url: str, timeout: float, named: str, patient: bool = True, access: RedisAccess | None = None
    ) -> None:
        access = access or RedisAccess()
        self.timeout, self.lost, self._named, self._login = timeout, 0, named, named
        self._redis = _client(url, timeout, named, patient, access)
        pool = self._redis.connection_pool
        pool.connection_class = make_leaving_class(pool.connection_class, on_lost=self._count_lost)
        settings = pool.connection_kwargs
        if access.credentials is not None and not (settings.get("username") or settings.get("password")):
            settings["credential_provider"], self._login = access.credentials, access.credentials.setting
        self.where = str(settings.get("path") or f"{settings.get('host')}:{settings.get('port', 6379)}")
        if is_sentinel(url):
            self.where = _describe_sentinels(url, access)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    @contextmanager
    def asking(self, doing: str) -> Iterator[Any]:
        """Return a pipeline (one connection, no MULTI) that turns Redis's errors into LedgerUnavailable.

        A ValueError becomes one too: it comes from reading an answer that another program may have written.
        """
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                yield pipe
        except (redis.RedisError, OSError) as error:
            by_login = isinstance(error, redis.AuthenticationError)
            advice = _advice(error).format(named=self._login if by_login else self._named)
            words = explain_refused_login(str(error), self._login)
            raise LedgerUnavailable(
                f"The ledger (Redis at {self.where}, {self._named}) could not {doing}: "
                + (words or f"{type(error).__name__}: {str(error).rstrip('. ')}; {advice}.")
            ) from error
        except ValueError as error:
            # The value is left out: another program may have written a secret.
            raise LedgerUnavailable(
                f"The ledger (Redis at {self.where}, {self._named}) could not {doing}: something else wrote over it. "
                "Find the program that writes keys beginning with ledger: there, and give it its own Redis."
            ) from error

    def run(self, doing: str, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script and return its answer.

        Raises:
            LedgerUnavailable: Redis is unavailable or refuses.
        """
        with self.asking(doing) as pipe:
            pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            (answer,) = pipe.execute(raise_on_error=False)
            if isinstance(answer, NoScriptError):  # a new server, or SCRIPT FLUSH: EVAL loads it for the next time
                pipe.execute_command("EVAL", script.text, len(keys), *keys, *args)
                (answer,) = pipe.execute(raise_on_error=False)
            return raise_error_answer(answer)

    def check_synced(self, answer: Any, seconds: float) -> None:
        """Raise unless WAITAOF answered that everything is on disk.

        Raises:
            LedgerCannotFsync: this server does not support it.
            LedgerNotSynced: not within `seconds`.
        """
        refusal = str(answer).lower() if isinstance(answer, redis.ResponseError) else ""
        if "unknown command" in refusal:
            raise LedgerCannotFsync(
                f"Redis at {self.where} has no WAITAOF, which came with Redis and Valkey 7.2: "
                'upgrade it, or do without handoff_durability="fsync".'
            )
        if "appendonly" in refusal:
            raise LedgerCannotFsync(
                f"Redis at {self.where} keeps no append-only file: set appendonly yes there, "
                'or do without handoff_durability="fsync".'
            )
        if raise_error_answer(answer)[0] < 1:
            raise LedgerNotSynced(
                f"Redis at {self.where} did not write its append-only file to disk within {seconds:g} s: "
                "check its disk; the bridge commits nothing until it does."
            )

    def _count_lost(self) -> None:
        self.lost += 1


#: Beginnings of Redis's refusals of a login, what is wrong, and what to do.
_LOGINS: Final = {
    "AUTH <password> called without any password configured": (
        "{named} has a password, and this Redis has none: take it out of {named}, or set requirepass in Redis."
    ),
    "Authentication required": (
        "this Redis needs a password, and {named} has none: write redis://:PASSWORD@HOST:6379/0."
    ),
    "invalid username-password pair": (
        "this Redis refuses the user or password of {named}: correct them, or the user in Redis (ACL LIST)."
    ),
}


def explain_refused_login(refusal: str, named: str) -> str:
    """Return what is wrong with a user or password, and what to do; empty for an error of another kind (pure).

    Parameters:
        refusal: the error of Redis or its client.
        named: the variable with the password.
    """
    known = (words for begin, words in _LOGINS.items() if begin in refusal)
    return next(known, "").format(named=named)


def raise_error_answer(answer: Any) -> Any:
    """Return an answer of a pipeline that raises no errors itself; raise it if it is an error."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def is_wrong_type(answer: Any) -> bool:
    """Return whether the answer is Redis's error about a key of another type, which another program wrote."""
    return isinstance(answer, ResponseError) and str(answer).startswith("WRONGTYPE")


def _client(url: str, timeout: float, named: str, patient: bool, access: RedisAccess) -> redis.Redis:
    """Return a client. It retries once, because of stale connections; more retries are the caller's decision."""
    # A retry reconnects and asks again: a frozen Redis would be waited for four times.
    tried_again = (redis.ConnectionError, redis.TimeoutError) if patient else (redis.ConnectionError,)
    # A Unix socket has neither a connection's timeout nor its keepalive.
    of_tcp = {} if "unix://" in to_client_url(url) else {"socket_connect_timeout": timeout, "socket_keepalive": True}
    options: dict[str, Any] = {
        **of_tcp,
        "protocol": 2,
        "socket_timeout": timeout,
        "health_check_interval": 25,
        "retry": Retry(NoBackoff(), 1, tried_again),
    }
    if is_sentinel(url):
        return _sentinel_client(url, named, access, options)
    try:
        client: redis.Redis = redis.Redis.from_url(to_client_url(url), **options)
        return client
    except ValueError:  # its text may contain a part of the password
        raise ValueError(
            f"{named} is no Redis address: write redis://:password@host:6379/0, the password URL-encoded."
        ) from None


def _sentinel_client(url: str, named: str, access: RedisAccess, options: dict[str, Any]) -> redis.Redis:
    """Return a client that asks the Sentinels for the master at each new connection."""
    try:
        address = parse_sentinel_url(url)
    except ValueError as error:
        raise ValueError(f"{named}: {error}") from None
    ways = access.sentinel
    sentinel: Any = make_sentinel(
        address.sentinels,
        min_other_sentinels=ways.get("min_other_sentinels", 0),
        sentinel_kwargs=make_sentinel_options(
            ways.get("sentinel_kwargs"), options["socket_timeout"], options["socket_connect_timeout"]
        ),
        **options,
    )
    if access.ssl:
        options |= {**(access.ssl if isinstance(access.ssl, dict) else {})}
        options["connection_class"] = SentinelManagedSSLConnection
    login = {"username": address.user or None, "password": address.password or None}
    client: redis.Redis = sentinel.master_for(_find_master_name(url, access), db=address.database, **login, **options)
    return client


def _find_master_name(url: str, access: RedisAccess) -> str:
    return parse_sentinel_url(url).master_name or str(access.sentinel.get(MASTER_NAME, ""))


def _describe_sentinels(url: str, access: RedisAccess) -> str:
    sentinels = ", ".join(f"{host}:{port}" for host, port in parse_sentinel_url(url).sentinels)
    return f"{_find_master_name(url, access)!r} (Sentinel: {sentinels})"


def _advice(error: Exception) -> str:
    """Return what to do about an error of Redis or of its connection."""
    if is_refusal(error):  # the error of a script that an ACL refuses something has no class of its own
        return _REFUSED
    by_class = (text for kind, text in _ADVICE if isinstance(error, kind))
    # A Redis that loads its files is a lost connection by its class alone.
    if isinstance(error, redis.ReadOnlyError) or (words := advise_redis_error(error)) is None:
        return next(by_class, "see Redis's own log")
    return words
