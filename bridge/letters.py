"""Dead letters read back from their topic: which deliveries have one."""

import time
from collections.abc import Mapping
from typing import Final

from bridge.errors import KafkaUnavailable
from bridge.extent import Extent, extents
from bridge.kafka import Record, TopicPartition, consumer_client
from bridge.settings import Settings

#: Seconds without a record after which a topic that has not been read to its end is given up.
SILENCE: Final = 20.0
#: How many of the last records of a partition are looked through for a letter that may have just been written.
RECENT: Final = 10_000
_NEEDED: Final = ("origin_topic", "origin_partition", "origin_offset", "handler", "bridge_group")

#: A dead letter's delivery: partition and offset of its origin, and the handler.
Letter = tuple[int, int, str]


def letters(settings: Settings, topic: str) -> set[Letter] | None:
    """Every dead letter of this group for a topic; `None` if Kafka has dropped some of it (retention).

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    places = extents(settings, [settings.names.dead_letters(topic)])
    if any(place.first > 0 for place in places):
        return None
    return _read(settings, topic, {place: place.first for place in places})


def recent_letters(settings: Settings, topic: str, partition: int) -> set[Letter]:
    """The last dead letters of this group for a partition of a topic.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    places = extents(settings, [settings.names.dead_letters(topic)])
    mine = [place for place in places if place.partition == partition % len(places)]
    return _read(settings, topic, {place: max(place.first, place.end - RECENT) for place in mine})


def _read(settings: Settings, topic: str, starts: Mapping[Extent, int]) -> set[Letter]:
    ends = {place.partition: place.end for place, start in starts.items() if place.end > start}
    client = consumer_client(settings.kafka, f"{settings.group}.letters")
    found: set[Letter] = set()
    try:
        client.assign([TopicPartition(place.topic, place.partition, start) for place, start in starts.items()])
        heard = time.monotonic()
        while ends:
            for record in client.consume(1000, 0.2):
                if record.error() is not None:
                    continue
                heard = time.monotonic()
                if (letter := _letter(record, settings.group, topic)) is not None:
                    found.add(letter)
                if (record.offset() or 0) + 1 >= ends.get(record.partition() or 0, 0):
                    ends.pop(record.partition() or 0, None)
            if time.monotonic() - heard > SILENCE:
                raise KafkaUnavailable(f"Kafka does not give the dead letters of {topic!r}.")
    finally:
        client.close()
    return found


def _letter(record: Record, group: str, topic: str) -> Letter | None:
    headers = dict(record.headers() or ())
    try:
        text = {name: (headers[name] or b"").decode("ascii") for name in _NEEDED}  # type: ignore[union-attr]
        if text["bridge_group"] != group or text["origin_topic"] != topic:
            return None
        return int(text["origin_partition"]), int(text["origin_offset"]), text["handler"]
    except (KeyError, ValueError):
        # Another producer's: none of ours.
        return None
