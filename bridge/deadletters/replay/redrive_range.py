"""A range of a source topic: its records, and the fate of each of their deliveries."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from bridge.deadletters.model.stored_letter import key_digest
from bridge.deadletters.replay.redrive_selection import (
    ON_ITS_WAY,
    DeliveryStand,
    OpenFateMeaning,
    judge_deliveries,
)
from bridge.errors import RedriveRefused
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent, find_offsets_at, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Account, Accounts, Fate, Ledger, LogHistory
from bridge.settings import Settings

#: Records of one look at the ledger.
AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a topic's partitions, as its logs are now.

    Attributes:
        spans: by partition, from the first offset on and below the last.
        logs: by partition, the id of its log: where that is another one, the offsets are other records.
    """

    topic: str
    spans: Mapping[int, tuple[int, int]]
    logs: Mapping[int, str]

    @property
    def size(self) -> int:
        """How many offsets it has; some may have no record."""
        return sum(max(0, end - start) for start, end in self.spans.values())

    def records(self, settings: Settings) -> Iterator[Record]:
        """Its records, as they come from Kafka.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        starts = {(self.topic, partition): start for partition, (start, _) in self.spans.items()}
        ends = {(self.topic, partition): end for partition, (_, end) in self.spans.items()}
        return read_records(settings, starts, ends)


class RangeDelivery(NamedTuple):
    """A delivery of a range, and how it stands.

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
    """A look at a topic's deliveries, beside the bridges.

    Raises:
        RedriveRefused: there is no ledger, or no such topic.
        KafkaUnavailable: Kafka did not answer.
    """
    catalog = TopicCatalog(settings, [topic])
    catalog.prepare()
    ledger = Ledger.of(settings, catalog.cluster)
    if ledger is None:
        raise RedriveRefused("What is done already is known by the ledger, and the broker is no Redis: set LEDGER_URL.")
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
    """How deliveries of a topic stand.

    Parameters:
        there: the topic's partitions.
        logs: of each the id of its log.
    """

    def __init__(self, settings: Settings, ledger: Ledger, there: Sequence[Extent], logs: Mapping[int, str]) -> None:
        self._settings, self._ledger, self.logs = settings, ledger, logs
        self._extents = {extent.partition: extent for extent in there}
        self._topic = there[0].topic
        self._grounds: dict[Account, OpenFateMeaning] = {}

    def range(self, since: str, until: str, partitions: Collection[int] = ()) -> OffsetRange:
        """The range that a person means.

        Parameters:
            since, until: as bridge.kafka.partition_offsets has them; what lies at `until` is not in it.
            partitions: of these alone; of all, where it is empty.

        Raises:
            NoMoment: one of them is none.
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
        """How the deliveries of some records stand, of each record those of all handlers, some records at a time.

        Parameters:
            handlers: in the order in which the deliveries of a record are given.

        Raises:
            LedgerUnavailable: the ledger did not answer.
        """
        # Not the records themselves: a thousand values may be a gigabyte.
        coming = (((each.partition() or 0, each.offset() or 0), key_digest(each.key())) for each in found)
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
        """Read what an open fate of these means."""
        for account, known in zip(accounts, Accounts(self._ledger).known(accounts), strict=True):
            committed = self._extents[account.partition].committed
            self._grounds[account] = OpenFateMeaning(committed, known.joined, known.lost)


def keep_first_of_sequence(
    found: Sequence[RangeDelivery], sequence: Sequence[str], sent: Collection[DeliveryStand]
) -> list[RangeDelivery]:
    """Of one record's deliveries those that are sent: of a sequence only the first, as it goes on from there (pure).

    None of a sequence is sent where one before it is on its way: it would run before that one.

    Parameters:
        found: of one record.
        sent: how one stands that is sent.
    """
    chosen = [each for each in found if each.stand in sent]
    led = [each for each in found if each.handler in sequence and (each in chosen or each.stand in ON_ITS_WAY)]
    leader = min(led, key=lambda each: sequence.index(each.handler), default=None)
    return [each for each in chosen if each.handler not in sequence or each is leader]
