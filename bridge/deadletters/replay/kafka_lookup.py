"""The reads of Kafka for a plan: traces of records whose sending was interrupted, and values too large for the
database.
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
from bridge.kafka.clients import Consumer, Record, TopicPartition, consumer_client
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.settings import Settings


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
    there = {each.place: each for each in read_extents(settings, {letter.letter.spot.topic for letter in letters})}
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
