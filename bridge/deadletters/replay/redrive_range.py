"""A range of a source topic: its records, the fate of each of their deliveries, and which of them a redrive sends."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from bridge.deadletters.model.digest import key_digest
from bridge.errors import RedriveRefused
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent, find_offsets_at, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Account, Accounts, Fate, Ledger, LogHistory
from bridge.settings import Settings


class DeliveryStand(StrEnum):
    """The stand of a delivery, as far as the ledger knows."""

    COMING = "open"
    """It was not read yet, and will be handed off."""
    HANDED = "handed"
    PARKED = "parked"
    DONE = "done"
    DEAD = "dead"
    DISCARDED = "discarded"
    LOST = "unaccounted"
    """It was committed, and its fate is open: it will not run."""
    UNKNOWN = "unknown"
    """It was committed, and the ledger knows nothing of it (any more): it may be done."""
    GAP = "gap"
    """The offset has no record."""


#: The stands that a redrive sends, and those that it sends only on request, because they may run twice.
SENT: Final = frozenset({DeliveryStand.DEAD, DeliveryStand.LOST})
SENT_AGAIN: Final = frozenset({DeliveryStand.DONE, DeliveryStand.DISCARDED, DeliveryStand.UNKNOWN})
#: The stands in flight.
ON_ITS_WAY: Final = frozenset({DeliveryStand.COMING, DeliveryStand.HANDED, DeliveryStand.PARKED})

_BY_FATE: Final = {
    Fate.HANDED: DeliveryStand.HANDED,
    Fate.PARKED: DeliveryStand.PARKED,
    Fate.DONE: DeliveryStand.DONE,
    Fate.DEAD: DeliveryStand.DEAD,
    Fate.DISCARDED: DeliveryStand.DISCARDED,
    Fate.GAP: DeliveryStand.GAP,
}


class OpenFateMeaning(NamedTuple):
    """The meaning of an open fate of one handler on one partition, by its offset.

    Attributes:
        committed: the offset from which on nothing was read yet; `None`: nothing is committed.
        joined: the first offset of the handler; `None`: it was never declared.
        lost: the offset below which the ledger lost the fates.
    """

    committed: int | None
    joined: int | None = None
    lost: int | None = None

    def of_open(self, offset: int, *, noted: bool) -> DeliveryStand:
        """Return the stand of a delivery whose fate is open.

        Parameters:
            noted: whether the ledger has a page for it, which may have expired since.
        """
        if self.committed is None or offset >= self.committed:
            return DeliveryStand.COMING
        known = self.joined is not None and offset >= max(self.joined, self.lost or 0)
        return DeliveryStand.LOST if known and noted else DeliveryStand.UNKNOWN


def judge_deliveries(
    ground: OpenFateMeaning, offsets: Sequence[int], fates: bytes, noted: Sequence[range]
) -> Iterator[DeliveryStand]:
    """Yield the stands of deliveries of a handler and a partition.

    Parameters:
        offsets: ascending.
        fates: one for each offset.
        noted: ascending runs of open offsets for which the ledger has a page.
    """
    runs = iter(noted)
    run = next(runs, range(0))
    for offset, fate in zip(offsets, fates, strict=True):
        if fate != Fate.OPEN:
            yield _BY_FATE[Fate(fate)]
            continue
        while run and run.stop <= offset:
            run = next(runs, range(0))
        yield ground.of_open(offset, noted=offset in run)


def explain_left_out(fate: Fate, *, again: bool) -> str:
    """Return why a delivery of a plan is left out, by its current fate; empty if it is sent."""
    stand = _BY_FATE.get(fate)
    return "" if stand is None or stand in find_sent_stands(again=again) else f"it is {stand} by now"


def find_sent_stands(*, again: bool) -> frozenset[DeliveryStand]:
    """Return the stands that a redrive sends.

    Parameters:
        again: whether deliveries that are or may be done run a second time.
    """
    return SENT | SENT_AGAIN if again else SENT


#: Records of one query of the ledger.
AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range of offsets of a topic's partitions, in its current logs.

    Attributes:
        spans: by partition, the first offset, and the end offset (exclusive).
        logs: by partition, the id of its log, in which the offsets are valid.
    """

    topic: str
    spans: Mapping[int, tuple[int, int]]
    logs: Mapping[int, str]

    @property
    def size(self) -> int:
        """Return the number of offsets, some of which may have no record."""
        return sum(max(0, end - start) for start, end in self.spans.values())

    def records(self, settings: Settings) -> Iterator[Record]:
        """Return its records, as they come from Kafka."""
        starts = {(self.topic, partition): start for partition, (start, _) in self.spans.items()}
        ends = {(self.topic, partition): end for partition, (_, end) in self.spans.items()}
        return read_records(settings, starts, ends)


class RangeDelivery(NamedTuple):
    """A delivery of a range with its stand.

    Attributes:
        key: the digest of its key; `None`: it has none.
    """

    partition: int
    offset: int
    handler: str
    stand: DeliveryStand
    key: int | None


@contextmanager
def open_range_look(settings: Settings, topic: str) -> Iterator["RangeLook"]:
    """Open a query of a topic's deliveries, beside the bridges.

    Raises:
        RedriveRefused: there is no ledger, or no such topic.
    """
    catalog = TopicCatalog(settings, [topic])
    catalog.prepare()
    ledger = Ledger.from_settings(settings, catalog.cluster)
    if ledger is None:
        raise RedriveRefused("A redrive needs a ledger of done deliveries, and the broker is no Redis: set LEDGER_URL.")
    try:
        there = read_extents(settings, [topic])
        if not there:
            raise RedriveRefused(f"Topic {topic!r} does not exist.")
        book = LogHistory(ledger)
        logs = {each.partition: book.log_id(topic, catalog.topic_ids[topic], each.partition) for each in there}
        yield RangeLook(settings, ledger, there, logs)
    finally:
        ledger.close()


class RangeLook:
    """The query of the stands of a topic's deliveries.

    Parameters:
        there: the topic's partitions.
        logs: the id of each partition's log.
    """

    def __init__(self, settings: Settings, ledger: Ledger, there: Sequence[Extent], logs: Mapping[int, str]) -> None:
        self._settings, self._ledger, self.logs = settings, ledger, logs
        self._extents = {extent.partition: extent for extent in there}
        self._topic = there[0].topic
        self._grounds: dict[Account, OpenFateMeaning] = {}

    def range(self, since: str, until: str, partitions: Collection[int] = ()) -> OffsetRange:
        """Return the range between two ends.

        Parameters:
            since, until: as in bridge.kafka.partition_offsets; `until` is exclusive.
            partitions: only these; empty: all.

        Raises:
            NoMoment: an end is invalid.
            RedriveRefused: the topic has no such partition, or the range ends before it begins.
        """
        if strange := sorted(set(partitions) - set(self._extents)):
            raise RedriveRefused(f"Topic {self._topic!r} has no partition {strange[0]}.")
        chosen = [extent for number, extent in self._extents.items() if not partitions or number in partitions]
        begins, ends = (find_offsets_at(self._settings, chosen, moment) for moment in (since, until))
        if any(begins[number] > ends[number] for number in begins) and sum(begins.values()) > sum(ends.values()):
            raise RedriveRefused(f"The range ends ({until}) before it begins ({since}).")
        spans = {number: (begin, max(begin, ends[number])) for number, begin in begins.items()}
        return OffsetRange(self._topic, spans, {number: self.logs[number] for number in spans})

    def deliveries(self, found: Iterable[Record], handlers: Sequence[str]) -> Iterator[list[RangeDelivery]]:
        """Yield the deliveries of records with their stands, some records at a time, for each record those of all
        handlers.

        Parameters:
            handlers: in the order of the deliveries of a record.
        """
        # Not the records themselves: a thousand values may take a gigabyte.
        coming = (((record.partition() or 0, record.offset() or 0), key_digest(record.key())) for record in found)
        while keys := dict(islice(coming, AT_ONCE)):
            offsets: dict[int, list[int]] = {}
            for partition, offset in sorted(keys):
                offsets.setdefault(partition, []).append(offset)
            asked = {Account(name, self._topic, self.logs[number], number): offsets[number]
                     for name in handlers for number in offsets}  # fmt: skip
            known = self._stands(asked)
            yield [
                RangeDelivery(*place, name, known[(*place, name)], key)
                for place, key in keys.items()
                for name in handlers
            ]

    def _stands(self, asked: Mapping[Account, Sequence[int]]) -> dict[tuple[int, int, str], DeliveryStand]:
        found: dict[tuple[int, int, str], DeliveryStand] = {}
        self._learn([account for account in asked if account not in self._grounds])
        fates = self._ledger.fates_of(list(asked.items()))
        for (account, offsets), some in zip(asked.items(), fates, strict=True):
            noted: list[range] = []
            if Fate.OPEN in some:
                noted = list(self._ledger.runs(account, {Fate.OPEN}, offsets[0], offsets[-1]))
            told = judge_deliveries(self._grounds[account], offsets, some, noted)
            found |= {(account.partition, at, account.handler): stand for at, stand in zip(offsets, told, strict=True)}
        return found

    def _learn(self, accounts: Sequence[Account]) -> None:
        """Read the meaning of an open fate for these accounts."""
        for account, known in zip(accounts, Accounts(self._ledger).read_progress(accounts), strict=True):
            committed = self._extents[account.partition].committed
            self._grounds[account] = OpenFateMeaning(committed, known.joined, known.lost)


def keep_first_of_sequence(
    found: Sequence[RangeDelivery], sequence: Sequence[str], sent: Collection[DeliveryStand]
) -> list[RangeDelivery]:
    """Return the deliveries of one record that are sent: of a sequence only the first, which continues it (pure).

    None of a sequence is sent if an earlier one is in flight: it would run before that one.

    Parameters:
        found: the deliveries of one record.
        sent: the stands of deliveries that are sent.
    """
    chosen = [delivery for delivery in found if delivery.stand in sent]
    led = [
        delivery
        for delivery in found
        if delivery.handler in sequence and (delivery in chosen or delivery.stand in ON_ITS_WAY)
    ]
    leader = min(led, key=lambda each: sequence.index(each.handler), default=None)
    return [each for each in chosen if each.handler not in sequence or each is leader]
