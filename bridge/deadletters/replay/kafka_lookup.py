"""The reads of Kafka for a plan: the target partition and its end, traces of records whose send was interrupted, and
values too large for the database.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.deadletters.db.letter_payload import LetterContent, LetterStanding
from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.deadletters.model.letter_parser import parse_letter
from bridge.deadletters.replay.plan_action import ClaimedDelivery
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import AdminClient, Consumer, Record, TopicPartition, admin_client, consumer_client
from bridge.kafka.managed_topic import ManagedTopic, TopicKind
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_admin import create_topics, read_cluster, read_shape
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.settings import Settings


class TargetPartitions:
    """The partitions of a plan's target topics, and the offsets from which on its records lie.

    Each topic is read once: later records have higher offsets, and this process's own records advance them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient = admin_client(settings.kafka)
        self._counts: dict[str, int] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def prepare(self, topics: Iterable[tuple[str, str]]) -> None:
        """Read topics, each with its source; create missing topics of this project if that is allowed."""
        wanted = {name: source for name, source in topics if name not in self._counts}
        if not wanted:
            return
        known = read_cluster(self._admin).topics
        missing = [
            ManagedTopic(name, TopicKind.REPLAY, source)
            for name, source in wanted.items()
            if name not in known and name != source and source in known
        ]
        if missing and self._settings.file.kafka_create_topics:
            made = create_topics(
                self._admin, missing, {ours.source: read_shape(known[ours.source]) for ours in missing}
            )
            known |= {ours.name: known[ours.source] for ours in missing if ours.name in made}
        self._counts |= {name: len(known[name].partitions) for name in wanted if name in known}
        self._ends |= {each.place: each.end for each in read_extents(self._settings, wanted)}

    def spot(self, topic: str, partition: int) -> LogPosition | None:
        """Return the least offset of a record that is sent now for the source's partition; `None` if the topic does
        not exist.
        """
        count = self._counts.get(topic)
        if not count:
            return None
        number = partition % count
        return LogPosition(topic, number, self._ends.get((topic, number), 0))

    def passed(self, spot: LogPosition) -> None:
        """Note the position of a record of this process: the next ones are behind it."""
        place = (spot.topic, spot.partition)
        self._ends[place] = max(self._ends.get(place, 0), spot.offset + 1)


def read_topic_id(settings: Settings, topic: str) -> str:
    """Return the id of a topic; empty if it does not exist."""
    catalog = TopicCatalog(settings, [topic])
    catalog.prepare()
    return catalog.topic_ids.get(topic, "")


#: The reason if a delivery may have been sent, and is not sent again.
LOST: Final = (
    "its plan was interrupted while it was being sent, and Kafka has dropped the offset: it may have been sent"
)


class KafkaTraces(NamedTuple):
    """The traces of interrupted sends.

    Attributes:
        records: all records at the offsets where theirs would be; an iterator for one pass.
        lost: positions of items whose records may have been in dropped offsets or a deleted topic.
    """

    records: Iterator[Record]
    lost: frozenset[int]


def find_traces(settings: Settings, claimed: Sequence[ClaimedDelivery]) -> KafkaTraces:
    """Return the records at the positions where interrupted sends would be.

    Raises:
        KafkaUnavailable: Kafka did not answer; also while the records are read.
    """
    spots = {each.item.position: each.spot for each in claimed if each.spot is not None}
    there = {each.place: each for each in read_extents(settings, {spot.topic for spot in spots.values()})}
    begin: dict[Place, int] = {}
    for topic, partition, offset in spots.values():
        place = (topic, partition)
        if place in there:
            begin[place] = max(there[place].first, min(offset, begin.get(place, offset)))
    begin = {place: start for place, start in begin.items() if start < there[place].end}
    lost = frozenset(position for position, spot in spots.items() if not is_within_log(there, spot))
    return KafkaTraces(read_records(settings, begin, {place: there[place].end for place in begin}), lost)


def is_within_log(there: Mapping[Place, Extent], spot: LogPosition) -> bool:
    """Return whether Kafka has all that was ever written from an offset on (pure)."""
    extent = there.get((spot.topic, spot.partition))
    return extent is not None and extent.first <= spot.offset <= extent.end


#: Seconds to wait for one record.
GIVEN_WITHIN: Final = 10.0


class ValueAway(NamedTuple):
    """A letter without its value in the database."""

    letter: LetterStanding
    content: LetterContent

    def is_in(self, record: Record) -> bool:
        """Return whether a record is its own: a recreated topic has others at the same offsets (pure)."""
        letter, content = self
        delivery = letter.delivery
        found = parse_letter(record, delivery.topic_id, 0)
        return (found.identity[2:5], found.number, found.key, found.headers, found.value_size) == (
            (delivery.topic_id, delivery.partition, delivery.offset),
            letter.number,
            content.key,
            content.headers,
            letter.value_size,
        )


def fetch_payloads(
    settings: Settings, wanted: Iterable[ValueAway], read: Callable[[], object] = bool
) -> dict[int, bytes | None]:
    """Return the values of letters by id, without those that Kafka has dropped.

    Parameters:
        read: called after each record: many take long.
    """
    letters = sorted(wanted, key=lambda each: each.letter.spot)
    if not letters:
        return {}
    there = {each.place: each for each in read_extents(settings, {each.letter.spot.topic for each in letters})}
    client = consumer_client(settings.kafka, f"{settings.group}.reading")
    found: dict[int, bytes | None] = {}
    try:
        for away in letters:
            topic, partition, offset = away.letter.spot
            extent = there.get((topic, partition))
            if extent is not None and extent.first <= offset < extent.end:
                record = _read_record(client, TopicPartition(topic, partition, offset))
                if record.offset() == offset and away.is_in(record):
                    found[away.letter.id] = record.value()
                read()
        return found
    finally:
        client.close()


def _read_record(client: Consumer, place: TopicPartition) -> Record:
    """Return the record at an offset, or the next one if that was just dropped or compacted."""
    client.assign([place])
    give_up = time.monotonic() + GIVEN_WITHIN
    while time.monotonic() < give_up:
        for record in client.consume(1, 0.2):
            if record.error() is None:
                return record
    raise KafkaUnavailable(f"Kafka does not give the record at {place.topic}-{place.partition}-{place.offset}.")
