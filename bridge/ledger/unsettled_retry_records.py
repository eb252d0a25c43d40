"""The unsettled records of retry and replay topics: those handed off, those yet to run, and missing ones.

With commit="handoff" a record is committed when it is handed off: it is in no lag, though its source record stays
parked until a worker has run it. Records come and go during a search: a missing one is searched for again in newer
records before it counts as lost.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Origin, Place
from bridge.formats.retry_record import RetryRecordPosition, read_retry_origin
from bridge.kafka.partition_offsets import Extent, ExtentRead, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import RETRY_RECORD, Account, Accounts, Fate, KnownLog, Ledger, LogHistory
from bridge.ledger.duplicate_check import is_to_run
from bridge.ledger.handoff_times import read_step_rests, read_steps
from bridge.ledger.unaccounted_offsets import AuditLine, count_audit_line
from bridge.settings import Settings


def count_handed_records(
    ledger: Ledger, ours: Callable[[str], bool], there: Iterable[Extent], ids: Mapping[str, str]
) -> dict[str, int]:
    """Return, by retry and replay topic, the number of records that are handed off, not settled, and not in its lag.

    Parameters:
        ours: whether a topic is included; deleted and recreated ones are checked too.
        there: the partitions of the existing ones, as they were before this call.
        ids: their topic ids.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    uncommitted = _find_uncommitted(ledger, there, ids)
    found: dict[str, int] = {}
    for account, handed in _find_handed(
        ledger, [each for each in Accounts(ledger).list_accounts() if _is_retry_record(each, ours)]
    ):
        count = sum(len(run[: _count_below(run, uncommitted.get(account))]) for run in handed)
        if count:
            found[account.topic] = found.get(account.topic, 0) + count
    return found


def find_records_to_run(ledger: Ledger | None, records: Collection[RetryRecordPosition]) -> set[RetryRecordPosition]:
    """Return the records of retry topics whose deliveries are yet to run.

    Parameters:
        ledger: `None` if there is no Redis for it: records that were handed off are gone.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    if ledger is None or not records:
        return {record for record in records if is_to_run(Fate.OPEN, passed=record.passed)}
    known = LogHistory(ledger).read_logs({(record.topic, record.partition) for record in records})
    asked = []
    for topic, partition, offset, _ in records:
        # Nothing was handed off from a log that no bridge has met.
        log = known.get((topic, partition), KnownLog(""))
        asked.append((Account(RETRY_RECORD, topic, log.id, partition), offset, offset))
    fates = ledger.fates_many(asked)
    return {record for record, (own,) in zip(records, fates, strict=True) if is_to_run(Fate(own), passed=record.passed)}


def _is_retry_record(account: Account, ours: Callable[[str], bool]) -> bool:
    return account.handler == RETRY_RECORD and ours(account.topic)


def _count_below(run: range, bound: int | None) -> int:
    """Return the number of offsets of a run below a bound."""
    return len(run) if bound is None else min(len(run), max(0, bound - run.start))


def _find_uncommitted(ledger: Ledger, there: Iterable[Extent], ids: Mapping[str, str]) -> dict[Account, int]:
    """Return the first offset in the lag of each account of a current partition."""
    extents = {each.place: each for each in there}
    known = LogHistory(ledger).read_logs(extents)
    found = {}
    for place, extent in extents.items():
        log = known.get(place)
        topic_id = ids.get(place[0], "")
        log_id = log.id if log is not None and log.topic_id == topic_id else topic_id
        found[Account(RETRY_RECORD, place[0], log_id, place[1])] = max(extent.first, extent.committed or 0)
    return found


def _find_handed(ledger: Ledger, accounts: list[Account]) -> Iterable[tuple[Account, list[range]]]:
    """Yield the handed offsets of each account, as its index of hand-offs leads to them."""
    if not accounts:
        return
    with ledger.asking("list which retry records are handed off") as pipe:
        for account in accounts:
            pipe.hgetall(ledger.index_key(account))
        answers = pipe.execute()
    for account, fields in zip(accounts, answers, strict=True):
        yield account, [run for rest in read_step_rests(ledger, account, read_steps(fields)) for run in rest.own]


#: How often a missing record is searched for again.
ROUNDS: Final = 4
#: Offsets that are read from the ledger at once.
SPAN: Final = 65_536

#: Parked offsets by account.
ParkedOffsets = dict[Account, set[int]]


@dataclass
class RetryTopicCount:
    """The unsettled records of this group in a retry or replay topic of a source.

    Attributes:
        parked: how many deliveries wait there.
        handed: how many of its records are handed off and not settled.
        unaccounted: committed offsets whose own fate is open.
    """

    topic: str
    kind: str
    delay: int | None
    parked: int = 0
    handed: int = 0
    unaccounted: int = 0

    def to_data(self) -> dict[str, Any]:
        """Return the counts as JSON-able data."""
        return asdict(self)


class ParkedSearch:
    """A search for the parked deliveries of one source.

    Parameters:
        catalog: prepared with the source.
        read: reads the extents; `None`: all partitions must be readable.

    Attributes:
        tiers: the counts by topic.
        moved: whether the last reading met new records, settled or not.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        catalog: TopicCatalog,
        source: str,
        read: ExtentRead | None = None,
    ) -> None:
        self._settings, self._ledger, self._catalog = settings, ledger, catalog
        self._read_extents = read or read_extents
        self._book = LogHistory(ledger)
        belonging = {name: each for name, each in catalog.waiting.items() if each.source == source}
        self.tiers = {
            name: RetryTopicCount(name, each.kind, each.delay or None) for name, each in sorted(belonging.items())
        }
        self._read: dict[Place, int] = {}
        self.moved = False
        if untold := catalog.identify([name for name in self.tiers if name not in catalog.topic_ids]):
            raise KafkaUnavailable(next(iter(untold.values())))

    def missing(self, spans: Mapping[Account, AuditLine]) -> ParkedOffsets:
        """Return the parked offsets, by account, of which no record is left.

        Parameters:
            spans: the accounts with their audit lines.

        Raises:
            KafkaUnavailable, LedgerUnavailable: Kafka or Redis did not answer.
        """
        return self.not_found(self._parked(spans))

    def not_found(self, parked: ParkedOffsets) -> ParkedOffsets:
        """Return those of these offsets that are still parked, and of which no record was written since.

        Raises:
            KafkaUnavailable, LedgerUnavailable: Kafka or Redis did not answer.
        """
        for turn in range(ROUNDS):
            for found in self.read_new_records():
                if found.account in parked:
                    parked[found.account].discard(found.origin.offset)
            parked = self._still(parked)
            if not parked or (turn and not self.moved):
                break
        return parked

    def read_new_records(self) -> Iterator["UnsettledRecord"]:
        """Yield each unsettled record of this group that was written since the last call."""
        alive = self._read_new_fates()
        self.moved = bool(alive)
        starts = {place: span.start for place, span in alive.items()}
        ends = {place: span.start + len(span.fates) for place, span in alive.items()}
        for record in read_records(self._settings, starts, ends):
            place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            fate = alive[place].at(offset)
            if fate is None or (origin := read_retry_origin(record)) is None or origin.group != self._settings.group:
                continue
            tier = self.tiers[place[0]]
            if fate is Fate.HANDED:
                tier.handed += 1
            else:
                tier.parked += 1
            yield UnsettledRecord(place, offset, fate, origin, record)

    def _read_new_fates(self) -> dict[Place, "_FateSpan"]:
        """Return the fates of the records written since the last call, by partition."""
        found: dict[Place, _FateSpan] = {}
        for extent in self.read_tiers():
            account = self.account(extent.place)
            if extent.place not in self._read:
                self._read[extent.place] = self._begin(extent, account)
            start = self._read[extent.place]
            if start < extent.end:
                found[extent.place] = _FateSpan(
                    start, self._fates(account, start, extent.end - 1), extent.committed or 0
                )
                self._read[extent.place] = extent.end
        return found

    def read_tiers(self) -> list[Extent]:
        """Return the partitions of the retry and replay topics as they are now.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        return self._read_extents(self._settings, self.tiers)

    def count_unaccounted(self) -> None:
        """Count committed records whose own fate is open: they would never be handed off."""
        for extent in self.read_tiers():
            self.tiers[extent.topic].unaccounted += count_audit_line(
                self._ledger, self.account(extent.place), extent
            ).unaccounted

    def by_delay(self) -> list[RetryTopicCount]:
        """Return the counts, the shortest delay first."""
        return sorted(self.tiers.values(), key=lambda tier: (tier.delay or 0, tier.topic))

    def account(self, place: Place) -> Account:
        """Return the account with the own fates of a partition of a retry or replay topic."""
        topic, partition = place
        return Account(
            RETRY_RECORD, topic, self._book.log_id(topic, self._catalog.topic_ids[topic], partition), partition
        )

    def _begin(self, extent: Extent, account: Account) -> int:
        """Return the first unsettled offset: committed records may be handed off."""
        if extent.committed is None:
            return extent.first
        handed = self._ledger.find(account, {Fate.HANDED}, extent.first, extent.committed - 1)
        return max(extent.first, extent.committed if handed is None else handed)

    def _fates(self, account: Account, first: int, last: int) -> bytes:
        starts = range(first, last + 1, SPAN)
        return b"".join(self._ledger.fates(account, start, min(start + SPAN - 1, last)) for start in starts)

    def _parked(self, spans: Mapping[Account, AuditLine]) -> ParkedOffsets:
        found: ParkedOffsets = {}
        for account, span in spans.items():
            runs = self._ledger.runs(account, {Fate.PARKED}, span.first, span.end - 1) if span.parked else ()
            if offsets := {offset for run in runs for offset in run}:
                found[account] = offsets
        return found

    def _still(self, parked: ParkedOffsets) -> ParkedOffsets:
        """Return the offsets that the ledger still calls parked."""
        asked = [(account, sorted(offsets)) for account, offsets in parked.items() if offsets]
        known = self._ledger.fates_of(asked)
        left = {
            account: {offset for offset, fate in zip(offsets, fates, strict=True) if fate == Fate.PARKED}
            for (account, offsets), fates in zip(asked, known, strict=True)
        }
        return {account: offsets for account, offsets in left.items() if offsets}


@dataclass(frozen=True, slots=True)
class UnsettledRecord:
    """An unsettled record: its place, own fate and origin."""

    place: Place
    offset: int
    fate: Fate
    origin: Origin
    record: Any

    @property
    def account(self) -> Account:
        """Return the account with the fate of its source record."""
        return Account(self.origin.handler, self.origin.topic, self.origin.topic_id, self.origin.partition)


@dataclass(frozen=True, slots=True)
class _FateSpan:
    start: int
    fates: bytes
    committed: int

    def at(self, offset: int) -> Fate | None:
        """Return the fate of a record that is yet to run, else `None`."""
        fate = self.fates[offset - self.start]
        if fate == Fate.HANDED:
            return Fate.HANDED
        return Fate.OPEN if fate in (Fate.OPEN, Fate.GAP) and offset >= self.committed else None
