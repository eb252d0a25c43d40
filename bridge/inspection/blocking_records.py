"""The records that hold a topic back: of each partition the one at which its commit stands, and in an ordered topic the
deliveries that wait behind another one of their key or partition.

The ledger is read in a few round trips for all partitions, and Kafka once. bridge/partitions/safe_offset.py decides
which fates are not safe to commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.inspection.record_content import RecordContent
from bridge.kafka.partition_offsets import Extent, ExtentReader
from bridge.kafka.record_reader import ReadBudget, ReadLimits, read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Account, Accounts, Fate, Ledger, LogHistory
from bridge.ledger.group_access import open_ledger
from bridge.ledger.handoff_times import read_steps
from bridge.ledger.ledger_client import FateSearch
from bridge.ledger.ledger_layout import PAGE
from bridge.partitions.safe_offset import OffsetTracker
from bridge.settings import Settings, TopicSettings

#: The most partitions that are looked at, those with the most lag first; the offsets of each behind its commit that are
#: searched for its first unsafe delivery, and in an ordered topic for those that wait.
MOST_PARTITIONS: Final = 100
SEARCHED: Final = PAGE
SEARCHED_FOR_WAITING: Final = 1_000
#: The records of all partitions together that are read for those that wait, at least so many of each; and the most that
#: is read of Kafka.
READ_FOR_WAITING: Final = 5_000
READ_AT_LEAST: Final = 50
READ: Final = ReadLimits(records=20_000, bytes=50_000_000, seconds=5)
#: The most lanes that are listed, and the offsets of each.
MOST_LANES: Final = 20
MOST_WAITING: Final = 10


@dataclass(frozen=True, slots=True)
class BlockingRecord:
    """The record at which the commit of a partition stands.

    Attributes:
        fates: by handler, the fate of its delivery, of those that are not safe to commit.
        behind: how many offsets of the partition follow it.
        handed_at: when the delivery in flight was handed off (Unix time, up to ten seconds early); `None`: not known.
        content: the record; `None`: Kafka does not give it.
    """

    partition: int
    offset: int
    fates: Mapping[str, Fate]
    behind: int
    handed_at: float | None = None
    content: RecordContent | None = None


@dataclass(frozen=True, slots=True)
class WaitingLane:
    """The deliveries of a handler that wait behind one of their key, or of their partition.

    Attributes:
        handler: or several with a comma between them, which run one after another for each message.
        fate: of the first delivery.
        head: the record of the first delivery.
        waiting: the offsets of the first ones that wait behind it.
        count: how many wait, as far as was read.
    """

    partition: int
    handler: str
    fate: Fate
    head: RecordContent
    waiting: tuple[int, ...]
    count: int


@dataclass
class BlockReport:
    """The records that hold the partitions of a topic back.

    Attributes:
        order: of the topic; empty: none.
        records: by partition; one that is committed up to its end, or nearly so, has none.
        lanes: those with the most waiting deliveries first; `more`: how many are left out.
        searched_to: by partition the offset up to which waiting deliveries were searched, if records follow.
        left_out: the number of partitions that were not looked at.
        unreadable: the partitions that Kafka cannot read, each with the reason.
    """

    order: str
    records: dict[int, BlockingRecord] = field(default_factory=dict)
    lanes: list[WaitingLane] = field(default_factory=list)
    more: int = 0
    searched_to: dict[int, int] = field(default_factory=dict)
    left_out: int = 0
    unreadable: Mapping[Place, str] = field(default_factory=dict)


class _Queue(NamedTuple):
    """The handlers of a sequence, or a single one."""

    handlers: tuple[str, ...]

    def find_fate(self, fates: Mapping[str, bytes], at: int, unsafe: frozenset[Fate]) -> Fate | None:
        """Return the fate of the first delivery of a message that has not ended; `None` if all have."""
        found = (Fate(fates[handler][at]) for handler in self.handlers)
        return next((fate for fate in found if fate in unsafe), None)


def find_blocking_records(settings: Settings, routes: Routes, topic: str) -> BlockReport:
    """Return the records that hold the partitions of a topic back.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer, or there is no ledger.
    """
    if settings.ledger_url is None:
        raise LedgerUnavailable("Fates are not known: no ledger is set, and the broker is no Redis. Set LEDGER_URL.")
    chosen, reader = settings.topic(topic), ExtentReader()
    extents = sorted(
        (each for each in reader.read(settings, [topic]) if _count_uncommitted(each)),
        key=lambda each: (-_count_uncommitted(each), each.partition),
    )
    report = BlockReport(chosen.order or "", left_out=max(0, len(extents) - MOST_PARTITIONS))
    report.unreadable = reader.unreadable
    with open_ledger(settings, [topic]) as (ledger, catalog):
        search = _BlockSearch(ledger, catalog, chosen, [each.name for each in routes.of(topic)], topic)
        heads = search.find_heads(extents[:MOST_PARTITIONS])
        contents = _read_contents(settings, heads, extents, chosen)
        for extent in extents:
            if (offset := heads.get(extent.partition)) is not None:
                report.records[extent.partition] = search.describe_head(extent, offset, contents)
        if chosen.order is not None:
            _add_lanes(report, search, contents, heads, extents)
    return report


def _count_uncommitted(extent: Extent) -> int:
    """Return the number of offsets behind the commit, also of records that retention has deleted meanwhile."""
    return extent.end - (extent.first if extent.committed is None else extent.committed)


class _BlockSearch:
    """The search of the ledger for one topic."""

    def __init__(
        self, ledger: Ledger, catalog: TopicCatalog, chosen: TopicSettings, handlers: Sequence[str], topic: str
    ) -> None:
        self._ledger, self._handlers, self._topic = ledger, handlers, topic
        topic_id = catalog.topic_ids.get(topic, "")
        self._topic_id, self._history = topic_id, LogHistory(ledger)
        tracker = OffsetTracker(0, handlers, chosen.commit, chosen.order is not None, chosen.holds_dead)
        self.unsafe = tracker.unsafe
        sequence = tuple(name for name in chosen.sequence if name in handlers)
        alone = (_Queue((name,)) for name in handlers if name not in sequence)
        self.queues = [*([_Queue(sequence)] if sequence else []), *alone]
        self._accounts: dict[tuple[int, str], Account] = {}
        self._joined: dict[Account, int] = {}
        self._handed: dict[Account, dict[bytes, bytes]] = {}

    def find_heads(self, extents: Sequence[Extent]) -> dict[int, int]:
        """Return by partition the first offset from its commit on with a delivery that is not safe to commit."""
        logs = self._history.read_logs([each.place for each in extents])
        for extent in extents:
            log = logs.get(extent.place)
            id_ = log.id if log is not None and log.topic_id == self._topic_id else self._topic_id
            for name in self._handlers:
                self._accounts[extent.partition, name] = Account(name, self._topic, id_, extent.partition)
        accounts = list(self._accounts.values())
        for account, progress in zip(accounts, Accounts(self._ledger).read_progress(accounts), strict=True):
            self._joined[account] = progress.joined or 0
        searches = [search for extent in extents for search in self._search_head(extent)]
        found: dict[int, int] = {}
        for search, offset in zip(searches, self._ledger.find_many(searches), strict=True):
            if offset is not None:
                number = search.account.partition
                found[number] = min(offset, found.get(number, offset))
        self._read_handed(found)
        return found

    def _search_head(self, extent: Extent) -> Iterator[FateSearch]:
        for name in self._handlers:
            account = self._accounts[extent.partition, name]
            start = max(extent.first if extent.committed is None else extent.committed, self._joined[account])
            for first, end in ((start, min(extent.first, extent.end)), (max(start, extent.first), extent.end)):
                last = min(end, first + SEARCHED) - 1
                if first <= last:
                    yield FateSearch(account, self._list_unsafe(extent, first), first, last)

    def _read_handed(self, heads: Mapping[int, int]) -> None:
        accounts = [self._accounts[number, name] for number in heads for name in self._handlers]
        with self._ledger.asking("read when deliveries were handed off") as pipe:
            for account in accounts:
                pipe.hgetall(self._ledger.index_key(account))
            self._handed = dict(zip(accounts, pipe.execute() if accounts else [], strict=True))

    def describe_head(
        self, extent: Extent, offset: int, contents: Mapping[int, Sequence[RecordContent]]
    ) -> BlockingRecord:
        """Return the blocking record of a partition."""
        fates = {
            name: Fate(found[0])
            for name, found in self.read_fates(extent.partition, offset, offset).items()
            if Fate(found[0]) in self._list_unsafe(extent, offset)
            and offset >= self._joined[self._accounts[extent.partition, name]]
        }
        times = [
            float(step.since)
            for name, fate in fates.items()
            if fate is Fate.HANDED
            for step in read_steps(self._handed.get(self._accounts[extent.partition, name], {}))
            if offset in step.span
        ]
        content = next((each for each in contents.get(extent.partition, ()) if each.offset == offset), None)
        return BlockingRecord(
            extent.partition, offset, fates, extent.end - offset - 1, max(times, default=None), content
        )

    def _list_unsafe(self, extent: Extent, offset: int) -> frozenset[Fate]:
        """Return the fates that are not safe to commit; a record that retention has deleted is never handed off."""
        return self.unsafe - {Fate.OPEN} if offset < extent.first else self.unsafe

    def read_fates(self, partition: int, first: int, last: int) -> dict[str, bytes]:
        """Return by handler the fates of some offsets, one byte each, in one round trip."""
        asked = [(self._accounts[partition, name], first, last) for name in self._handlers]
        return dict(zip(self._handlers, self._ledger.fates_many(asked), strict=True))


def _read_contents(
    settings: Settings, heads: Mapping[int, int], extents: Sequence[Extent], chosen: TopicSettings
) -> dict[int, list[RecordContent]]:
    """Return by partition the record that blocks it, and in an ordered topic some of those behind."""
    by_partition = {each.partition: each for each in extents}
    share = max(READ_AT_LEAST, min(SEARCHED_FOR_WAITING, READ_FOR_WAITING // max(1, len(heads))))
    many = 1 if chosen.order is None else share
    starts = {by_partition[number].place: max(offset, by_partition[number].first) for number, offset in heads.items()}
    starts = {place: first for place, first in starts.items() if first < by_partition[place[1]].end}
    ends = {place: min(by_partition[place[1]].end, start + many) for place, start in starts.items()}
    found: dict[int, list[RecordContent]] = {number: [] for number in heads}
    for record in read_records(settings, starts, ends, ReadBudget(READ)):
        number = record.partition() or 0
        found[number].append(RecordContent.from_record(record, by_partition[number]))
    return found


def _add_lanes(
    report: BlockReport,
    search: _BlockSearch,
    contents: Mapping[int, Sequence[RecordContent]],
    heads: Mapping[int, int],
    extents: Sequence[Extent],
) -> None:
    lanes: list[WaitingLane] = []
    for extent in extents:
        number, records = extent.partition, contents.get(extent.partition, ())
        if number in heads and records:
            first, last = max(heads[number], extent.first), max(each.offset for each in records)
            fates = search.read_fates(number, first, last)
            if last + 1 < extent.end:
                report.searched_to[number] = last + 1
            for queue in search.queues:
                lanes += find_lanes(queue.handlers, records, first, fates, search.unsafe, report.order)
    lanes.sort(key=lambda lane: (-lane.count, lane.partition, lane.head.offset))
    report.lanes, report.more = lanes[:MOST_LANES], max(0, len(lanes) - MOST_LANES)


def find_lanes(
    handlers: tuple[str, ...],
    records: Sequence[RecordContent],
    first: int,
    fates: Mapping[str, bytes],
    unsafe: frozenset[Fate],
    order: str,
) -> list[WaitingLane]:
    """Return the lanes of one queue in which deliveries wait (pure).

    Parameters:
        handlers: those of a sequence, or a single one.
        records: of one partition, offsets ascending.
        fates: by handler, of the offsets from `first` on.
        order: `key`, or `partition`.
    """
    queue = _Queue(handlers)
    waiting: dict[bytes | None, list[tuple[RecordContent, Fate]]] = {}
    for record in records:
        # Messages without a key are independent.
        if order == "key" and record.key is None:
            continue
        fate = queue.find_fate(fates, record.offset - first, unsafe)
        if fate is not None:
            waiting.setdefault(record.key if order == "key" else None, []).append((record, fate))
    return [
        WaitingLane(
            lane[0][0].partition,
            ", ".join(handlers),
            lane[0][1],
            lane[0][0],
            tuple(record.offset for record, _ in lane[1 : 1 + MOST_WAITING]),
            len(lane) - 1,
        )
        for lane in waiting.values()
        if len(lane) > 1
    ]
