"""The offsets of one handler on one partition that are unaccounted for, and how many have each fate: an audit line."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.kafka.partition_offsets import Extent
from bridge.ledger.account_progress import AccountProgress, Accounts
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import RETRY_RECORD, Account
from bridge.settings import Settings

#: Maximum number of offsets that a report names of each kind.
NAMED: Final = 10
_SHOWN: Final = ("done", "handed", "parked", "dead", "discarded", "open", "forgotten", "expired", "evicted")


@dataclass
class AuditLine:
    """The audit of one handler on one partition.

    Attributes:
        imported: whether the settings import the handler. One that was renamed or removed is not, and is audited up to
            the offset that it reached.
        first, end: the offsets that Kafka has.
        joined: the first offset for which the handler existed.
        gaps: offsets without a record (compaction, transaction markers), and those of a page that expired and was
            written again.
        expired: committed offsets without a fate, no fault: below `joined`, where the handler was not there, or had
            settled all before the ledger was wiped; and from `joined` on those whose page expired or was never written.
        forgotten: offsets that were handed off and committed before the ledger was wiped: suspected data loss;
            `forgotten_at` names the first of them.
        evicted: offsets, from `joined` on, whose page Redis evicted before it expired. Their fates are unknown: done
            deliveries may run again, handed deliveries may be lost.
        unaccounted: how many offsets below the committed one are open; `unaccounted_at` names the first of them.
        oldest: the oldest offsets in flight; `oldest_since` is when the first of them was handed off (ISO 8601; up to
            ten seconds early).
        parked_nowhere: parked offsets without a record in any retry or replay topic; they count as unaccounted.
        letters_missing: dead offsets without a dead letter in the topic.
    """

    handler: str
    partition: int
    first: int
    end: int
    committed: int | None
    joined: int | None
    imported: bool = True
    done: int = 0
    handed: int = 0
    parked: int = 0
    dead: int = 0
    discarded: int = 0
    open: int = 0
    gaps: int = 0
    expired: int = 0
    forgotten: int = 0
    forgotten_at: list[int] = field(default_factory=list)
    evicted: int = 0
    unaccounted: int = 0
    unaccounted_at: list[int] = field(default_factory=list)
    oldest: list[int] = field(default_factory=list)
    oldest_since: str | None = None
    parked_nowhere: list[int] = field(default_factory=list)
    letters_missing: list[int] = field(default_factory=list)

    @property
    def fates(self) -> dict[str, int]:
        """Return the number of deliveries of each fate, and of those whose fate was forgotten or has expired."""
        return {fate: getattr(self, fate) for fate in _SHOWN}

    @property
    def missing(self) -> int:
        """Return the number of committed offsets that nobody can account for: must be 0.

        A forgotten retry record counts as the delivery of its source topic, whose fate the same wipe took.
        """
        forgotten = 0 if self.handler == RETRY_RECORD else self.forgotten
        return self.unaccounted + forgotten + self.evicted


def find_wiped_end(settings: Settings, ledger: Ledger, extent: Extent, accounts: Sequence[Account]) -> int:
    """Return the offset below which a wiped ledger may have lost unsettled deliveries; 0 if there are none.

    A ledger with the epoch of the commit that does not know the partition is older than the commit.
    """
    if extent.epoch is None or not accounts:
        return 0
    there = extent.epoch == ledger.state().epoch and Accounts(ledger).read_reached(accounts) is not None
    # The setting may have changed since the commit.
    if there or (extent.commit_mode or settings.topic(extent.topic).commit) != "handoff":
        return 0
    return extent.committed or 0


def count_audit_line(
    ledger: Ledger,
    account: Account,
    extent: Extent,
    imported: bool = True,
    wiped_below: int = 0,
    known: AccountProgress | None = None,
) -> AuditLine:
    """Return the audit line of one handler on one partition.

    Parameters:
        imported: a handler that is not imported is counted up to the offset that it reached.
        wiped_below: offsets committed below it were handed off with another ledger.
        known: the progress of the account, if it was read for many at once.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    first, last = extent.first, extent.end - 1
    if known is None:
        (known,) = Accounts(ledger).read_progress([account])
    committed = extent.committed if imported else known.reached
    count = ledger.count(account, first, last)
    made = AuditLine(account.handler, account.partition, first, extent.end, extent.committed, known.joined, imported)
    made.done, made.handed, made.parked = (count.fates[fate] for fate in (Fate.DONE, Fate.HANDED, Fate.PARKED))
    made.dead, made.discarded = count.fates[Fate.DEAD], count.fates[Fate.DISCARDED]
    made.gaps = count.fates[Fate.GAP]
    # What the whole range does not have no part of it has: of a partition whose deliveries are settled little is asked.
    inside = max(committed or 0, extent.committed or 0) <= extent.end
    none_open, none_pageless = inside and not count.fates[Fate.OPEN], inside and not count.pageless
    asked_to = min(last, (committed or 0) - 1)
    asked = count if imported else ledger.count(account, first, asked_to)
    made.open = asked.fates[Fate.OPEN] + asked.pageless
    lost_below = min(committed or 0, max(known.lost or 0, wiped_below if imported else 0))
    evicted = list(ledger.evicted(account, max(first, lost_below, known.joined or 0), last if imported else asked_to))
    made.evicted = sum(len(offsets) for offsets, _ in evicted)
    if committed is not None:
        if not (none_open and none_pageless):
            gone = ledger.count(account, first, lost_below - 1)
            made.forgotten = gone.fates[Fate.OPEN] + gone.pageless
        if made.forgotten:
            made.forgotten_at = _first_offsets(_find_fateless(ledger, account, range(first, lost_below)))
        # Below `joined` a bridge reads nothing: the handler was not there, or a wiped ledger had its fates. One that
        # never began here has no such offsets, unless another ledger had them.
        is_new = known.joined is None and extent.epoch in (None, ledger.state().epoch)
        below = range(max(first, lost_below, committed if is_new else 0), committed)
        earlier = range(below.start, committed if known.joined is None else min(known.joined, committed))
        still_missing = sum(len(_find_common(offsets, below)) for offsets, missing in evicted if missing)
        pageless = 0 if none_pageless else ledger.count(account, below.start, below.stop - 1).pageless
        made.expired = pageless - still_missing
        if not none_open:
            made.expired += ledger.count(account, earlier.start, earlier.stop - 1).fates[Fate.OPEN]
        made.open -= made.forgotten + made.expired + still_missing
    if committed is not None and known.joined is not None and not none_open:
        lost = list(ledger.runs(account, {Fate.OPEN}, max(first, known.joined), committed - 1))
        made.unaccounted = sum(map(len, lost))
        made.unaccounted_at = _first_offsets(lost)
    if count.fates[Fate.HANDED]:
        made.oldest = _first_offsets(ledger.runs(account, {Fate.HANDED}, first, last))
    return made


def _find_fateless(ledger: Ledger, account: Account, offsets: range) -> Iterator[range]:
    """Yield the runs of offsets that are open or in no page."""
    start = offsets.start
    for run in ledger.runs(account, set(Fate) - {Fate.OPEN}, offsets.start, offsets.stop - 1):
        yield range(start, run.start)
        start = run.stop
    yield range(start, offsets.stop)


def _find_common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _first_offsets(runs: Iterable[range]) -> list[int]:
    found: list[int] = []
    for run in runs:
        found += run[: NAMED - len(found)]
        if len(found) >= NAMED:
            break
    return found
