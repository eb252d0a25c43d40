"""Values that are too large for the desk's database, read from where their letters lie in Kafka."""

import time
from collections.abc import Iterable
from typing import Final

from bridge.deadletters.store.items import Spot
from bridge.errors import KafkaUnavailable
from bridge.kafka import Consumer, TopicPartition, consumer_client
from bridge.settings import Settings
from bridge.topics.extents import extents

#: Seconds for Kafka to give one record.
GIVEN_WITHIN: Final = 10.0


def payloads(settings: Settings, spots: Iterable[Spot]) -> dict[Spot, bytes | None]:
    """The values of the records at these places; those that Kafka has dropped are left out.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    wanted = sorted(set(spots))
    there = {each.place: each for each in extents(settings, {spot.topic for spot in wanted})}
    client = consumer_client(settings.kafka, f"{settings.group}.reading")
    found: dict[Spot, bytes | None] = {}
    try:
        for spot in wanted:
            extent = there.get((spot.topic, spot.partition))
            if extent is not None and extent.first <= spot.offset < extent.end:
                found |= _read(client, spot)
        return found
    finally:
        client.close()


def _read(client: Consumer, spot: Spot) -> dict[Spot, bytes | None]:
    client.assign([TopicPartition(*spot)])
    give_up = time.monotonic() + GIVEN_WITHIN
    while time.monotonic() < give_up:
        for record in client.consume(1, 0.2):
            if record.error() is None:
                # What comes behind it instead says that it was dropped, or compacted away, a moment ago.
                return {spot: record.value()} if record.offset() == spot.offset else {}
    raise KafkaUnavailable(f"Kafka does not give the record at {spot.topic}-{spot.partition}-{spot.offset}.")
