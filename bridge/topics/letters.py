"""Dead letters read back from their topic: which deliveries have one, and why each died."""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable
from bridge.kafka import Record, TopicPartition, consumer_client, headers_of
from bridge.records.message import Delivery
from bridge.settings import Settings
from bridge.topics.extents import Extent, extents
from bridge.topics.names import TopicNames

#: Seconds without a record after which a topic that has not been read to its end is given up.
SILENCE: Final = 20.0
#: How many of the last records of a partition are looked through for a letter that may have just been written.
RECENT: Final = 10_000
_NEEDED: Final = ("origin_topic", "origin_partition", "origin_offset", "handler", "bridge_group")

#: Most characters that are kept of an error's message.
ERROR: Final = 300


class Letter(NamedTuple):
    """Whose a dead letter is: partition and offset of its origin, the handler, and the log that they lay in.

    A topic that is made again, or whose log went back, has the same offsets again. `topic_id` is the log's id, as
    deliveries have it; a dead letter of an older version has none, and is told apart by the record's `timestamp`.
    """

    partition: int
    offset: int
    handler: str
    topic_id: str = ""
    timestamp: str = ""

    @classmethod
    def those_of(cls, delivery: Delivery) -> "tuple[Letter, Letter]":
        """What a dead letter of this delivery may say, of this version and of an older one."""
        message = delivery.message
        place = (message.partition, message.offset, delivery.handler)
        return cls(*place, topic_id=delivery.topic_id), cls(*place, timestamp=text_of(message.timestamp))

    def is_of(self, topic_id: str) -> bool:
        """Whether it may be of the log with this id."""
        return self.topic_id in ("", topic_id)


class Death(NamedTuple):
    """Why a delivery died, as its last dead letter says; `at` in seconds (Unix)."""

    reason: str
    error: str
    at: float


class Letters(NamedTuple):
    """Dead letters by delivery; `whole` unless Kafka has dropped some (retention)."""

    found: dict[Letter, Death]
    whole: bool


def text_of(timestamp: int | None) -> str:
    """A record's timestamp as dead letters have it."""
    return "" if timestamp is None else str(timestamp)


def letters(settings: Settings, topic: str) -> Letters:
    """Every dead letter of this group for a topic.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    places = extents(settings, [TopicNames.of(settings).dead_letters(topic)])
    found = _read(settings, topic, {place: place.first for place in places})
    return Letters(found, all(place.first == 0 for place in places))


def recent_letters(settings: Settings, topic: str, partition: int) -> set[Letter]:
    """The last dead letters of this group for a partition of a topic.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    places = extents(settings, [TopicNames.of(settings).dead_letters(topic)])
    mine = [place for place in places if place.partition == partition % len(places)]
    return set(_read(settings, topic, {place: max(place.first, place.end - RECENT) for place in mine}))


def _read(settings: Settings, topic: str, starts: Mapping[Extent, int]) -> dict[Letter, Death]:
    ends = {place.partition: place.end for place, start in starts.items() if place.end > start}
    client = consumer_client(settings.kafka, f"{settings.group}.letters")
    found: dict[Letter, Death] = {}
    try:
        client.assign([TopicPartition(place.topic, place.partition, start) for place, start in starts.items()])
        heard = time.monotonic()
        while ends:
            for record in client.consume(1000, 0.2):
                if record.error() is not None:
                    continue
                heard = time.monotonic()
                headers = _headers(record)
                if (letter := _letter(headers, settings.group, topic)) is not None:
                    found[letter] = _death(headers)
                if (record.offset() or 0) + 1 >= ends.get(record.partition() or 0, 0):
                    ends.pop(record.partition() or 0, None)
            if time.monotonic() - heard > SILENCE:
                raise KafkaUnavailable(f"Kafka does not give the dead letters of {topic!r}.")
    finally:
        client.close()
    return found


def _headers(record: Record) -> dict[str, str]:
    """As text; a header that another client wrote may be none that Python's can read."""
    try:
        headers: Any = dict(headers_of(record))
    except Exception:
        return {}
    return {name: (value or b"").decode("utf-8", "replace") for name, value in headers.items()}


def _letter(headers: Mapping[str, str], group: str, topic: str) -> Letter | None:
    if any(name not in headers for name in _NEEDED):
        return None
    if headers["bridge_group"] != group or headers["origin_topic"] != topic:
        return None
    try:
        place = (int(headers["origin_partition"]), int(headers["origin_offset"]), headers["handler"])
    except ValueError:
        # Another producer's: none of ours.
        return None
    if topic_id := headers.get("origin_topic_id"):
        return Letter(*place, topic_id=topic_id)
    return Letter(*place, timestamp=headers.get("origin_timestamp", ""))


def _death(headers: Mapping[str, str]) -> Death:
    error = f"{headers.get('error_class', '')}: {headers.get('error_message', '')}".rstrip(": ")
    at = headers.get("failed_at", "")
    return Death(headers.get("reason", ""), error[:ERROR], int(at) / 1000 if at.isdecimal() else 0.0)
