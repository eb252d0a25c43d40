"""Values that are too large for the desk's database, read from where their letters lie in Kafka."""

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from bridge.deadletters.letters.reading import read
from bridge.deadletters.store.contents import Content, Standing
from bridge.errors import KafkaUnavailable
from bridge.kafka import Consumer, Record, TopicPartition, consumer_client
from bridge.settings import Settings
from bridge.topics.extents import extents

#: Seconds for Kafka to give one record.
GIVEN_WITHIN: Final = 10.0


class Away(NamedTuple):
    """A letter of which the database has all but the value."""

    letter: Standing
    content: Content

    def is_in(self, record: Record) -> bool:
        """Whether this is its record: of a topic that was made again others lie at the same offsets (pure)."""
        letter, content = self
        delivery = letter.delivery
        found = read(record, delivery.topic_id, 0)
        return (found.identity[2:5], found.number, found.key, found.headers, found.value_size) == (
            (delivery.topic_id, delivery.partition, delivery.offset),
            letter.number,
            content.key,
            content.headers,
            letter.value_size,
        )


def payloads(settings: Settings, wanted: Iterable[Away], read: Callable[[], object] = bool) -> dict[int, bytes | None]:
    """The values of these letters, by their ids; those whose records Kafka has no more are left out.

    Parameters:
        read: is called after each that was read: of many it takes long.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    letters = sorted(wanted, key=lambda each: each.letter.spot)
    if not letters:
        return {}
    there = {each.place: each for each in extents(settings, {each.letter.spot.topic for each in letters})}
    client = consumer_client(settings.kafka, f"{settings.group}.reading")
    found: dict[int, bytes | None] = {}
    try:
        for away in letters:
            topic, partition, offset = away.letter.spot
            extent = there.get((topic, partition))
            if extent is not None and extent.first <= offset < extent.end:
                record = _record(client, TopicPartition(topic, partition, offset))
                if record.offset() == offset and away.is_in(record):
                    found[away.letter.id] = record.value()
                read()
        return found
    finally:
        client.close()


def _record(client: Consumer, place: TopicPartition) -> Record:
    """The record there; or the one behind it, where that was dropped, or compacted away, a moment ago."""
    client.assign([place])
    give_up = time.monotonic() + GIVEN_WITHIN
    while time.monotonic() < give_up:
        for record in client.consume(1, 0.2):
            if record.error() is None:
                return record
    raise KafkaUnavailable(f"Kafka does not give the record at {place.topic}-{place.partition}-{place.offset}.")
