"""Fates in Redis: half a byte per delivery, written only through one Lua script (script.py).

Every write may be repeated after a lost answer: a transition that happened does not happen again, and an
entry is pushed only while its offsets are open.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, NoScriptError
from redis.retry import Retry

from bridge.errors import LedgerCannotFsync, LedgerNotSynced, LedgerUnavailable
from bridge.ledger import fates, script
from bridge.ledger.epoch import State
from bridge.ledger.fates import Fate
from bridge.ledger.pages import PAGE, Account, by_page, chosen, key, stretches
from bridge.ledger.writes import Call, HandOff, Mark, Written
from lossless.transport.replica import leaving

_SHA = hashlib.sha1(script.WRITE.encode(), usedforsecurity=False).hexdigest()
_PAGES_AT_ONCE = 32
_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (redis.AuthenticationError, "check the user and password in {named}"),
    (NoPermissionError, "allow this Redis user what it was refused (ACL SETUSER)"),
    (redis.ReadOnlyError, "it is a replica: point {named} at the primary"),
    (redis.OutOfMemoryError, "raise its maxmemory or free some: nothing is taken until then"),
    (redis.BusyLoadingError, "it is reading its files after a start: wait"),
    (redis.ConnectionError, "start it or mend the network, and ask again"),
    (redis.TimeoutError, "see what keeps it busy (SLOWLOG GET), and ask again"),
)


class Count(NamedTuple):
    """How many offsets have each fate, and how many lie on pages that expired or were never written."""

    fates: dict[Fate, int]
    pageless: int


class Ledger:
    """The fates of one consumer group on one Kafka cluster.

    Args:
        url: where Redis is (``redis://``, ``rediss://``, ``unix://``, kombu's ``redis+socket://``).
        cluster: the Kafka cluster's id.
        group: the consumer group.
        keep: days that a page is kept after its last write.
        timeout: seconds to wait for an answer.
        named: the variable that `url` was set by, for errors.

    Attributes:
        where: host and port, or path, without the password.

    Connects when first asked. Every method raises LedgerUnavailable when Redis does not do what it was asked.
    Safe to share between threads, and to inherit through a fork.

    Raises:
        ValueError: `url` is no Redis address.
    """

    def __init__(
        self, url: str, cluster: str, group: str, keep: float = 7, timeout: float = 5, named: str = "LEDGER_URL"
    ) -> None:
        self.cluster, self.group, self._named = cluster, group, named
        self.keep = max(1, int(keep * 86_400))
        self._timeout = timeout
        self._redis = _client(url, timeout, named)
        self._lost = 0
        pool = self._redis.connection_pool
        pool.connection_class = leaving(pool.connection_class, on_lost=self._count_lost)
        settings = self._redis.connection_pool.connection_kwargs
        self.where = str(settings.get("path") or f"{settings.get('host')}:{settings.get('port', 6379)}")
        self._writes = key("writes")
        self._fixed = (self._writes, key(cluster, group, "joined"), key(cluster, group, "reached"))
        self._prefixes: dict[Account, str] = {}

    def __repr__(self) -> str:
        return f"Ledger({self.where}, cluster={self.cluster!r}, group={self.group!r})"

    def close(self) -> None:
        """Give the connections back."""
        self._redis.close()

    def write(self, items: Sequence[Mark | HandOff]) -> list[Written]:
        """Do all `items` in one atomic step, in order, and return what each found.

        Repeating a write changes nothing. A page's time to live begins anew with each write that changes it.

        Raises:
            ValueError: offsets that are not ascending; or a hand-off whose entries are neither one, nor one
            for
                each offset.
        """
        if not items:
            return []
        call = self._call()
        for item in items:
            call.add(item)
        return call.written(self._run("write fates", call))

    def mark_gap(self, account: Account, first: int, last: int) -> None:
        """Mark many offsets in a row as gaps, pages apart that they cover whole and that are not there.

        On those nothing is open that anybody asks for, however long the gap is.
        """
        spans = by_page(first, last)
        while some := list(islice(spans, _PAGES_AT_ONCE)):
            with self.asking("see which pages there are") as pipe:
                for page, _, _ in some:
                    pipe.exists(self._key(account, page))
                there = pipe.execute()
            found = [span for span, known in zip(some, there, strict=True) if known or span[1:] != (0, PAGE - 1)]
            self.write([Mark(account, range(p * PAGE + a, p * PAGE + b + 1), Fate.GAP) for p, a, b in found])

    def renew(self, spans: Iterable[tuple[Account, int, int]]) -> None:
        """Let the time to live begin anew of what there is between the first and last offset of each span."""
        with self.asking("keep what is under way") as pipe:
            for account, first, last in spans:
                for page, _, _ in by_page(first, last):
                    pipe.expire(self._key(account, page), self.keep)
                pipe.expire(self.index_key(account), self.keep)
            pipe.execute()

    def forget(self, account: Account, first: int, last: int) -> None:
        """Make every fate from `first` to `last` open, done too: for a person who asks to run again."""
        for page, start, end in by_page(first, last):
            call = self._call()
            offsets = range(page * PAGE + start, page * PAGE + end + 1)
            call.add_stretches(account, offsets, script.FORGET, "mark", 0)
            self._run("forget fates", call)

    def fates(self, account: Account, first: int, last: int) -> bytes:
        """Return the fates from `first` to `last`, both included, one byte each; without a page: open."""
        return self.fates_many([(account, first, last)])[0]

    def fates_many(self, questions: Sequence[tuple[Account, int, int]]) -> list[bytes]:
        """Return, for many (account, first, last), what `fates` does for one, in one round trip."""
        spans = [(account, list(by_page(first, last))) for account, first, last in questions]
        with self.asking("read fates") as pipe:
            for account, pages in spans:
                for page, start, end in pages:
                    pipe.getrange(self._key(account, page), start >> 1, end >> 1)
            answers = iter(pipe.execute())
        return [b"".join(_cut(next(answers), start, end) for _, start, end in pages) for _, pages in spans]

    def fates_of(self, questions: Sequence[tuple[Account, Sequence[int]]]) -> list[bytes]:
        """Return the fates, one byte each, of many offsets (ascending) of many accounts in one round trip.

        So a worker asks before it runs a batch: own coordinates and origins together (see fates.to_skip).
        """
        spans = [(account, stretches(offsets)) for account, offsets in questions]
        with self.asking("read fates") as pipe:
            for account, some in spans:
                for page, first, mask in some:
                    pipe.getrange(self._key(account, page), first, first + len(mask) - 1)
            answers = iter(pipe.execute())
        return [
            b"".join(chosen(next(answers).ljust(len(mask), b"\0"), mask) for _, _, mask in some) for _, some in spans
        ]

    def find(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> int | None:
        """Return the first offset from `first` to `last` with one of these fates (without a page: open)."""
        while first <= last:
            end = min(last, first - first % PAGE + PAGE * _PAGES_AT_ONCE - 1)
            at = fates.find(self.fates(account, first, end), wanted)
            if at >= 0:
                return first + at
            first = end + 1
        return None

    def runs(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> Iterator[range]:
        """Yield the offsets from `first` to `last` whose fate is one of `wanted`, in unbroken runs cut at
        pages.

        Offsets without a page, expired or never written, are left out, even when open is wanted. So what is
        unaccounted for is ``runs(account, {Fate.OPEN}, joined, committed - 1)``.
        """
        for base, found in self._pages(account, first, last):
            if found is not None:
                yield from (range(base + run.start, base + run.stop) for run in fates.runs(found, wanted))

    def count(self, account: Account, first: int, last: int) -> Count:
        """Count the fates from offset `first` to `last`, both included."""
        total, seen = dict.fromkeys(Fate, 0), 0
        for _, found in self._pages(account, first, last):
            if found is not None:
                seen += len(found)
                for fate, number in fates.count(found).items():
                    total[fate] += number
        return Count(total, max(0, last - first + 1) - seen)

    def state(self) -> State:
        """Return the ledger's state, to compare with an earlier one (State.doubt); a new data set is given an
        epoch.

        Ask after the reads and writes that a commit rests on, and before the commit.
        """
        with self.asking("read the ledger's state") as pipe:
            self._ask_state(pipe)
            return self._state(_known(pipe.execute(raise_on_error=False)))

    def state_on(self, pipe: Any) -> State:
        """Return the ledger's state on the connection on which `pipe` watches a key; without a data set, no epoch."""
        epoch, writes = pipe.get(key("epoch")) or b"", pipe.get(self._writes)
        return self._state((None, epoch, writes, pipe.info("server"), pipe.info("replication")))

    def since(self) -> float:
        """Return since when nothing was forgotten (Unix time): the start of the server, or of the data set if later.

        What was settled before may be open again, be it that the server's last second was lost.
        """
        with self.asking("read since when the ledger has all") as pipe:
            self._ask_state(pipe)
            _, epoch, _, server, _ = _known(pipe.execute(raise_on_error=False))
        begun = epoch.rpartition(b"-")[2]
        return max(time.time() - int(server["uptime_in_seconds"]), int(begun) if begun.isdigit() else 0)

    def fsync(self, seconds: float) -> State:
        """Wait until all that anyone wrote so far is on disk in the append-only file; return the state then.

        A server that started again since the writes has synced nothing of them: compare with the state
        before.

        Raises:
            LedgerCannotFsync: this server never can.
            LedgerNotSynced: not within `seconds`.
            LedgerUnavailable: Redis did not answer.
            ValueError: `seconds` is not less than the ledger's `timeout`.
        """
        if seconds >= self._timeout:
            raise ValueError(f"{seconds:g} s for the disk is no less than the {self._timeout:g} s for any answer.")
        with self.asking("wait for the append-only file") as pipe:
            # Redis syncs in order: waiting for a write of this connection waits for everybody's before it.
            pipe.incr(self._writes)
            pipe.execute_command("WAITAOF", 1, 0, int(seconds * 1000))
            self._ask_state(pipe)
            _, synced, *state = pipe.execute(raise_on_error=False)
            self._check_synced(synced, seconds)
            return self._state(_known(state))

    @contextmanager
    def asking(self, doing: str) -> Iterator[Any]:
        """Give a pipeline (one connection, no MULTI), and turn Redis's errors into LedgerUnavailable."""
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                yield pipe
        except (redis.RedisError, OSError) as error:
            advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "see Redis's own log")
            raise LedgerUnavailable(
                f"The ledger (Redis at {self.where}, {self._named}) could not {doing}: "
                f"{type(error).__name__}: {error}; {advice.format(named=self._named)}."
            ) from error

    def index_key(self, account: Account) -> str:
        """Return the key of the account's index of hand-off times (stuck.py)."""
        return self._key(account, "handed")

    def page_key(self, account: Account, page: int) -> str:
        """Return the key of a page."""
        return self._key(account, page)

    def _key(self, account: Account, what: int | str) -> str:
        prefix = self._prefixes.get(account)
        if prefix is None:
            prefix = self._prefixes[account] = key(self.cluster, self.group, "fates", *account)
        return f"{prefix}:{what}"

    def _call(self) -> Call:
        return Call(self._fixed, self.keep, self._key)

    def _run(self, doing: str, call: Call) -> list[list[bytes]]:
        with self.asking(doing) as pipe:
            pipe.execute_command("EVALSHA", _SHA, len(call.keys), *call.keys, *call.args)
            (answer,) = pipe.execute(raise_on_error=False)
            if isinstance(answer, NoScriptError):  # a new server, or SCRIPT FLUSH: EVAL loads it for the next time
                pipe.execute_command("EVAL", script.WRITE, len(call.keys), *call.keys, *call.args)
                (answer,) = pipe.execute(raise_on_error=False)
            found: list[list[bytes]] = _raised(answer)
            return found

    def _pages(self, account: Account, first: int, last: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield (first offset, fates or None where there is no page) for the pages from `first` to `last`."""
        spans = by_page(first, last)
        while some := list(islice(spans, _PAGES_AT_ONCE)):
            with self.asking("read fates") as pipe:
                for page, start, end in some:
                    pipe.exists(self._key(account, page))
                    pipe.getrange(self._key(account, page), start >> 1, end >> 1)
                answers = pipe.execute()
            for (page, start, end), there, found in zip(some, answers[::2], answers[1::2], strict=True):
                yield page * PAGE + start, _cut(found, start, end) if there else None

    def _ask_state(self, pipe: Any) -> None:
        pipe.set(key("epoch"), f"{secrets.token_hex(8)}-{int(time.time())}", nx=True)
        pipe.get(key("epoch"))
        pipe.get(self._writes)
        pipe.info("server")
        pipe.info("replication")

    def _state(self, answers: Sequence[Any]) -> State:
        _, epoch, writes, server, replication = answers
        history = str(replication.get("master_replid", ""))
        return State(epoch.decode(), int(writes or 0), str(server["run_id"]), history, self._lost)

    def _count_lost(self) -> None:
        self._lost += 1

    def _check_synced(self, synced: Any, seconds: float) -> None:
        refusal = str(synced).lower() if isinstance(synced, redis.ResponseError) else ""
        if "unknown command" in refusal:
            raise LedgerCannotFsync(
                f"Redis at {self.where} has no WAITAOF, which came with Redis and Valkey 7.2: "
                'update it, or do without handoff_durability="fsync".'
            )
        if "appendonly" in refusal:
            raise LedgerCannotFsync(
                f"Redis at {self.where} keeps no append-only file: set appendonly yes there, "
                'or do without handoff_durability="fsync".'
            )
        if _raised(synced)[0] < 1:
            raise LedgerNotSynced(
                f"Redis at {self.where} did not bring its append-only file to disk within {seconds:g} s: "
                "look at its disk; nothing may be committed until it does."
            )


def _client(url: str, timeout: float, named: str) -> redis.Redis:
    """Make the client. A second try covers a stale connection; to go on is the caller's matter."""
    if url.startswith("redis+socket://"):  # kombu's name for it
        url = "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")
    try:
        return redis.Redis.from_url(
            url,
            protocol=2,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            socket_keepalive=True,
            health_check_interval=25,
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError:  # its text may hold a part of the password
        raise ValueError(
            f"{named} is no Redis address: write redis://:password@host:6379/0, the password URL-encoded."
        ) from None


def _cut(found: bytes, start: int, end: int) -> bytes:
    """Return the fates from `start` to `end` of a page, given its bytes from `start // 2` on."""
    halves = found.ljust((end >> 1) - (start >> 1) + 1, b"\0")
    return fates.unpack(halves)[start & 1 :][: end - start + 1]


def _known(state: Sequence[Any]) -> list[Any]:
    """The answers to `_ask_state`; a full Redis takes no epoch, and where there is one needs none."""
    made, *rest = state
    return [None if rest[0] else _raised(made), *map(_raised, rest)]


def _raised(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
