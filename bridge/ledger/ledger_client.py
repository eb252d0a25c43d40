"""The client of the ledger: reads fates, and writes them through one Lua script (write_fates.lua).

Every write may be repeated after a lost answer: a transition that happened does not happen again, and an entry is
pushed only while its offsets are open.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Final, NamedTuple

from bridge.errors import LedgerUnavailable
from bridge.ledger import fate_rules, ledger_scripts
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_epoch import LedgerState, LedgerStateReader
from bridge.ledger.ledger_layout import (
    PAGE,
    Account,
    LedgerKeys,
    choose_fates,
    find_stretches,
    ledger_key,
    split_by_page,
)
from bridge.ledger.ledger_scripts import Mark, WriteCall, WriteItem, WriteResult
from bridge.ledger.redis_connection import RedisConnection
from bridge.settings import RedisAccess, Settings
from lossless.lua import Script

#: Pages that one round trip reads.
_PAGES_AT_ONCE: Final = 32
#: Keys that one EXISTS asks about, and the pieces that it is cut into if some of them exist.
_KEYS_AT_ONCE: Final = 256
_PIECES: Final = 8
#: Pages whose expiry one call of a script renews.
_RENEWED_AT_ONCE: Final = 1_000


class FateCount(NamedTuple):
    """The number of offsets with each fate, and of those on pages that expired or were never written."""

    fates: dict[Fate, int]
    pageless: int


class FateSearch(NamedTuple):
    """A search for the first offset from `first` to `last`, both included, with one of some fates.

    Attributes:
        pageless: whether an offset without a page counts as open; else it is left out.
    """

    account: Account
    wanted: Collection[Fate]
    first: int
    last: int
    pageless: bool = True


class Ledger:
    """The fates of one consumer group on one Kafka cluster.

    Parameters:
        url: where Redis is (``redis://``, ``rediss://``, ``unix://``, kombu's ``redis+socket://``), or its Sentinels
            (``sentinel://``).
        cluster: the Kafka cluster's id.
        group: the consumer group.
        keep: days that a page is kept after its last write.
        timeout: seconds to wait for an answer.
        patient: whether a request without an answer in time is sent once more.
        named: the variable that `url` was set by, for errors.
        access: how Redis is reached, beside the address.

    Attributes:
        where: host and port, or path, without the password.

    Connects on first use. Every method raises LedgerUnavailable when Redis is unavailable or refuses.
    Safe to share between threads, and to inherit through a fork.

    Raises:
        ValueError: `url` is no Redis address.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        group: str,
        keep: float = 7,
        timeout: float = 5,
        named: str = "LEDGER_URL",
        patient: bool = True,
        access: RedisAccess | None = None,
    ) -> None:
        self.cluster, self.group = cluster, group
        self.keep = max(1, int(keep * 86_400))
        self._connection = RedisConnection(url, timeout, named, patient, access)
        self.where = self._connection.where
        self._keys = LedgerKeys(cluster, group)
        self._states = LedgerStateReader(self._connection, self._keys.writes)

    @classmethod
    def from_settings(
        cls, settings: Settings, cluster: str = "", timeout: float = 5, patient: bool = True
    ) -> "Ledger | None":
        """Return the ledger of the settings' group; `None` if they name no Redis for it.

        Parameters:
            cluster: the Kafka cluster's id; empty for what does not depend on it: decisions, members.
        """
        if (url := settings.ledger_url) is None:
            return None
        keep = settings.file.kafka_ledger_days
        return cls(url, cluster, settings.group, keep, timeout, settings.ledger_named, patient, settings.redis)

    @classmethod
    def once(cls, settings: Settings, seconds: float, cluster: str = "") -> "Ledger | None":
        """Return the ledger for a caller who waits: a request without an answer in so many seconds is not
        sent again.
        """
        return cls.from_settings(settings, cluster, seconds, patient=False)

    def __repr__(self) -> str:
        return f"Ledger({self.where}, cluster={self.cluster!r}, group={self.group!r})"

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def write(self, items: Sequence[WriteItem]) -> list[WriteResult]:
        """Write all `items` in one atomic step, in order, and return the fates that each found.

        Repeating a write changes nothing. Each write that changes a page renews its expiry.

        Raises:
            ValueError: offsets that are not ascending; or a hand-off whose entries are neither one, nor one for each
                offset.
        """
        if not items:
            return []
        call = self.call(items)
        return call.written(self.run("write fates", ledger_scripts.WRITE_FATES, call.keys, call.args))

    def call(self, items: Iterable[WriteItem] = ()) -> WriteCall:
        """Return the keys and arguments of `WRITE_FATES` for `items`, to write together with something else.

        Raises:
            ValueError: as `write`.
        """
        keys = self._keys
        made = WriteCall((keys.writes, keys.joined, keys.reached), self.keep, keys.account)
        for item in items:
            made.add(item)
        return made

    def mark_gap(self, account: Account, first: int, last: int) -> None:
        """Mark a run of offsets as gaps, without creating pages that would hold nothing else.

        On a missing page nothing counts as open, however long the gap is.
        """
        spans = split_by_page(first, last)
        while some := list(islice(spans, _PAGES_AT_ONCE)):
            with self.asking("read which pages exist") as pipe:
                for page, _, _ in some:
                    pipe.exists(self._keys.account(account, page))
                there = pipe.execute()
            existing = [span for span, known in zip(some, there, strict=True) if known or span[1:] != (0, PAGE - 1)]
            self.write([Mark(account, range(p * PAGE + a, p * PAGE + b + 1), Fate.GAP) for p, a, b in existing])

    def renew(self, spans: Iterable[tuple[Account, int, int]]) -> None:
        """Renew the expiry of existing pages between the first and last offset of each span."""
        doing, found = "renew the pages of deliveries in flight", list(spans)
        pages = (self._keys.account(account, page) for account, *span in found for page, _, _ in split_by_page(*span))
        while some := list(islice(pages, _RENEWED_AT_ONCE)):
            self.run(doing, ledger_scripts.RENEW_PAGES, some, [self.keep])
        with self.asking(doing) as pipe:
            for account in {account for account, *_ in found}:
                pipe.expire(self.index_key(account), self.keep)
            pipe.execute()

    def forget(self, account: Account, first: int, last: int) -> None:
        """Make every fate from `first` to `last` open, done too, so that a person can have it run again."""
        for page, start, end in split_by_page(first, last):
            call = self.call()
            offsets = range(page * PAGE + start, page * PAGE + end + 1)
            call.add_stretches(account, offsets, ledger_scripts.FORGET, "mark", 0)
            self.run("forget fates", ledger_scripts.WRITE_FATES, call.keys, call.args)

    def discard_unsettled(self, account: Account, runs: Sequence[range]) -> int:
        """Discard those offsets of `runs` that are open or handed, and return how many."""
        call = self.call()
        for run in runs:
            call.add_stretches(account, run, ledger_scripts.DISCARD_UNSETTLED, "mark", 0)
        answer = self.run("discard queued deliveries", ledger_scripts.WRITE_FATES, call.keys, call.args)
        before = (
            choose_fates(old, mask)
            for run, olds in zip(runs, answer, strict=True)
            for old, (_, _, mask) in zip(olds, find_stretches(run), strict=True)
        )
        return sum(each.count(fate) for each in before for fate in fate_rules.UNSETTLED)

    def end_dead(self, account: Account, offsets: Sequence[int], end: Fate) -> set[int]:
        """Write `end`, discarded or done, to those of `offsets` (ascending) that are dead, and return these."""
        call = self.call()
        call.add_stretches(account, offsets, ledger_scripts.END_DEAD[end], "mark", 0)
        (olds,) = self.run("end dead deliveries", ledger_scripts.WRITE_FATES, call.keys, call.args)
        before = b"".join(
            choose_fates(old, mask) for old, (_, _, mask) in zip(olds, find_stretches(offsets), strict=True)
        )
        return fate_rules.choose_offsets(offsets, before, {Fate.DEAD})

    def fates(self, account: Account, first: int, last: int) -> bytes:
        """Return the fates from `first` to `last`, both included, one byte each; open if there is no page."""
        return self.fates_many([(account, first, last)])[0]

    def fates_many(self, questions: Sequence[tuple[Account, int, int]]) -> list[bytes]:
        """Return the fates of many (account, first, last) in one round trip."""
        spans = [(account, list(split_by_page(first, last))) for account, first, last in questions]
        with self.asking("read fates") as pipe:
            for account, pages in spans:
                for page, start, end in pages:
                    pipe.getrange(self._keys.account(account, page), start >> 1, end >> 1)
            answers = iter(pipe.execute())
        found = [b"".join(_cut_fates(next(answers), start, end) for _, start, end in pages) for _, pages in spans]
        for (account, first, last), each in zip(questions, found, strict=True):
            self._check(account, range(first, last + 1), each)
        return found

    def fates_of(self, questions: Sequence[tuple[Account, Sequence[int]]]) -> list[bytes]:
        """Return the fates, one byte each, of many offsets (ascending) of many accounts in one round trip.

        A worker reads them before it runs a batch: of records and source records together (duplicate_check.is_to_skip).
        """
        spans = [(account, find_stretches(offsets)) for account, offsets in questions]
        with self.asking("read fates") as pipe:
            for account, some in spans:
                for page, first, mask in some:
                    pipe.getrange(self._keys.account(account, page), first, first + len(mask) - 1)
            answers = iter(pipe.execute())
        found = [
            b"".join(choose_fates(next(answers).ljust(len(mask), b"\0"), mask) for _, _, mask in some)
            for _, some in spans
        ]
        for (account, offsets), each in zip(questions, found, strict=True):
            self._check(account, offsets, each)
        return found

    def find_expired(self, account: Account, offsets: Sequence[int]) -> set[int]:
        """Return those of these offsets whose page is gone and that were safe to commit: their fates have expired."""
        if not offsets:
            return set()
        pages = sorted({offset // PAGE for offset in offsets})
        with self.asking("read which fates have expired") as pipe:
            for name in (self._keys.joined, self._keys.reached):
                pipe.hget(name, ledger_key(*account))
            for page in pages:
                pipe.exists(self._keys.account(account, page))
            joined, reached, *there = pipe.execute()
        below = max(int(joined or 0), int(reached or 0))
        gone = {page for page, exists in zip(pages, there, strict=True) if not exists}
        return {offset for offset in offsets if offset < below and offset // PAGE in gone}

    def find(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> int | None:
        """Return the first offset from `first` to `last` with one of these fates; an offset without a page is open."""
        while first <= last:
            end = min(last, first - first % PAGE + PAGE * _PAGES_AT_ONCE - 1)
            (found,) = self.find_many([FateSearch(account, wanted, first, end)])
            if found is not None:
                return found
            first = end + 1
        return None

    def find_many(self, searches: Sequence[FateSearch]) -> list[int | None]:
        """Return the first offset that each search finds, all in one round trip."""
        with self.asking("read fates") as pipe:
            for search in searches:
                for page, start, end in split_by_page(search.first, search.last):
                    key = self._keys.account(search.account, page)
                    if not search.pageless:
                        pipe.exists(key)
                    pipe.getrange(key, start >> 1, end >> 1)
            answers = iter(pipe.execute())
        return [self._find_first(search, answers) for search in searches]

    def _find_first(self, search: FateSearch, answers: Iterator[Any]) -> int | None:
        """Return the first offset that a search finds in its answers, of which all are taken."""
        first = None
        for page, start, end in split_by_page(search.first, search.last):
            there = search.pageless or bool(next(answers))
            fates, base = _cut_fates(next(answers), start, end), page * PAGE + start
            if search.pageless:
                self._check(search.account, range(base, base + len(fates)), fates)
            if there and first is None and (at := fate_rules.find_fate(fates, search.wanted)) >= 0:
                first = base + at
        return first

    def runs(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> Iterator[range]:
        """Yield the offsets from `first` to `last` whose fate is one of `wanted`, in unbroken runs cut at pages.

        Offsets without a page, expired or never written, are left out, even when open is wanted: so
        ``runs(account, {Fate.OPEN}, joined, committed - 1)`` are the unaccounted offsets.
        """
        for base, fates in self._pages(account, first, last):
            if fates is not None:
                yield from (
                    range(base + run.start, base + run.stop) for run in fate_rules.find_fate_runs(fates, wanted)
                )

    def count(self, account: Account, first: int, last: int) -> FateCount:
        """Count the fates from offset `first` to `last`, both included."""
        total, seen = dict.fromkeys(Fate, 0), 0
        for _, fates in self._pages(account, first, last):
            if fates is not None:
                seen += len(fates)
                for fate, number in fate_rules.count_fates(fates).items():
                    total[fate] += number
        return FateCount(total, max(0, last - first + 1) - seen)

    def evicted(self, account: Account, first: int, last: int) -> Iterator[tuple[range, bool]]:
        """Yield the offsets from `first` to `last` whose page Redis evicted before it expired, page by page.

        Each comes with whether the page is still missing; one that was written again has only new fates.
        """
        notes, spans = self._keys.page_notes(account), split_by_page(first, last)
        while some := list(islice(spans, _PAGES_AT_ONCE)):
            with self.asking("read which pages were evicted") as pipe:
                pipe.time()
                pipe.hmget(notes, [name for page, _, _ in some for name in (f"{page}", f"!{page}")])
                for page, _, _ in some:
                    pipe.exists(self._keys.account(account, page))
                (now, _), noted, *there = pipe.execute()
            for (page, start, end), due, again, exists in zip(some, noted[::2], noted[1::2], there, strict=True):
                if again is not None or (not exists and int(due or 0) > now):
                    yield range(page * PAGE + start, page * PAGE + end + 1), not exists

    def state(self) -> LedgerState:
        """Return the ledger's state, to compare with an earlier one (LedgerState.doubt); a new data set gets an epoch.

        Read it after the reads and writes that a commit depends on, and before the commit.
        """
        return self._states.now()

    def state_on(self, pipe: Any) -> LedgerState:
        """Return the ledger's state on the connection on which `pipe` watches a key; a new data set gets no epoch."""
        return self._states.on(pipe)

    def since(self) -> float:
        """Return since when nothing was forgotten (Unix time): the start of the server, or of the data set if later.

        Offsets settled before may be open again, as the server may have lost its last second.
        """
        return self._states.since()

    def fsync(self, seconds: float) -> LedgerState:
        """Wait until everything written so far is on disk in the append-only file; return the state then.

        A server that restarted since the writes has not synced them: compare with the state before.

        Raises:
            LedgerCannotFsync: this server does not support it.
            LedgerNotSynced: not within `seconds`.
            LedgerUnavailable: Redis did not answer.
            ValueError: `seconds` is not less than the ledger's `timeout`.
        """
        return self._states.synced(seconds)

    def asking(self, doing: str) -> AbstractContextManager[Any]:
        """Return a pipeline (one connection, no MULTI) that turns Redis's errors into LedgerUnavailable."""
        return self._connection.asking(doing)

    def run(self, doing: str, what: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run one of the ledger's scripts and return its answer."""
        return self._connection.run(doing, what, keys, args)

    def index_key(self, account: Account) -> str:
        """Return the key of the account's index of hand-off times (handoff_times.py)."""
        return self._keys.account(account, "handed")

    def page_key(self, account: Account, page: int) -> str:
        """Return the key of a page."""
        return self._keys.account(account, page)

    def find_existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of these keys that exist.

        The commands grow with the keys that exist, hardly with those that are asked about: EXISTS takes many at once.
        """
        existing: set[str] = set()
        parts = _cut(keys, _KEYS_AT_ONCE)
        with self.asking("read which keys exist") as pipe:
            while parts:
                for part in parts:
                    pipe.exists(*part)
                counts = list(zip(parts, pipe.execute(), strict=True))
                existing.update(key for part, count in counts if count == len(part) for key in part)
                mixed = [part for part, count in counts if 0 < count < len(part)]
                parts = [piece for part in mixed for piece in _cut(part, -(-len(part) // _PIECES))]
        return existing

    def _check(self, account: Account, offsets: Sequence[int], found: bytes) -> None:
        """Raise if a fate is unknown: nobody can say whether the delivery may run, or be committed."""
        if (at := fate_rules.find_unknown_fate(found)) >= 0:
            raise LedgerUnavailable(
                f"{account.topic}-{account.partition}-{offsets[at]} has a fate for {account.handler} that this version "
                f"does not know: {found[at]}, in {self._keys.account(account, offsets[at] // PAGE)!r} of the ledger at "
                f"{self.where}. It is neither run nor committed. If a newer version wrote it, start that version here; "
                f"else reset the offset: bridge reset {account.topic} --to {offsets[at]} --again."
            )

    def _pages(self, account: Account, first: int, last: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield (first offset, fates, or None without a page) for the pages from `first` to `last`."""
        spans = split_by_page(first, last)
        while some := list(islice(spans, _PAGES_AT_ONCE)):
            with self.asking("read fates") as pipe:
                for page, start, end in some:
                    pipe.exists(self._keys.account(account, page))
                    pipe.getrange(self._keys.account(account, page), start >> 1, end >> 1)
                answers = pipe.execute()
            for (page, start, end), there, fates in zip(some, answers[::2], answers[1::2], strict=True):
                yield page * PAGE + start, _cut_fates(fates, start, end) if there else None


def _cut_fates(fates: bytes, start: int, end: int) -> bytes:
    """Return the fates from `start` to `end` of a page, given its bytes from `start // 2` on."""
    halves = fates.ljust((end >> 1) - (start >> 1) + 1, b"\0")
    return fate_rules.unpack_fates(halves)[start & 1 :][: end - start + 1]


def _cut(keys: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return the keys in pieces of at most so many."""
    return [keys[start : start + size] for start in range(0, len(keys), size)]
