"""The latest dead letters of a group, with what each says of its delivery."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bridge.errors import KafkaUnavailable
from bridge.extent import extents
from bridge.kafka import Record, TopicPartition, consumer_client
from bridge.settings import Settings

#: Dead letters of a partition that are looked through, the latest.
RECENT: Final = 2_000
#: Seconds without a record after which reading is given up.
SILENCE: Final = 10.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter: where it lies, whose delivery it was, and why that died (times in seconds, Unix)."""

    place: str
    topic: str
    partition: int
    offset: int
    handler: str
    attempts: int
    reason: str
    error: str
    failed_at: float


@dataclass(frozen=True, slots=True)
class Latest:
    """What was read; `more` where there are older ones that were not."""

    letters: tuple[DeadLetter, ...]
    more: bool


def latest(settings: Settings, topic: str) -> Latest:
    """The latest dead letters of this group for a source topic, in the order in which they were written by partition.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    found = extents(settings, [settings.names.dead_letters(topic)])
    starts = {(e.topic, e.partition): max(e.first, e.end - RECENT) for e in found if e.end > e.first}
    ends = {(e.topic, e.partition): e.end for e in found if e.end > e.first}
    if not starts:
        return Latest((), False)
    letters = [letter for record in _records(settings, starts, ends) if (letter := _letter(record, settings.group))]
    more = any(e.end - RECENT > e.first for e in found)
    return Latest(tuple(letter for letter in letters if letter.topic == topic), more)


def _records(
    settings: Settings, starts: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]
) -> Iterator[Record]:
    client = consumer_client(settings.kafka, f"{settings.group}.letters")
    try:
        client.assign([TopicPartition(*place, start) for place, start in starts.items()])
        heard = time.monotonic()
        while ends:
            for record in client.consume(1000, 0.2):
                if record.error() is not None:
                    continue
                heard = time.monotonic()
                place = (record.topic() or "", record.partition() or 0)
                if (record.offset() or 0) < ends.get(place, 0):
                    yield record
                if (record.offset() or 0) + 1 >= ends.get(place, 0):
                    ends.pop(place, None)
            # Transaction markers and what was compacted away have no record: the position says that all is read.
            for at in client.position([TopicPartition(*place) for place in ends]) if ends else []:
                if at.offset >= ends[(at.topic, at.partition)]:
                    ends.pop((at.topic, at.partition))
            if time.monotonic() - heard > SILENCE:
                raise KafkaUnavailable("Kafka does not give the dead letters.")
    finally:
        client.close()


def _letter(record: Record, group: str) -> DeadLetter | None:
    headers: dict[str, bytes | None] = dict(_headers(record))

    def text(name: str) -> str:
        return (headers[name] or b"").decode("ascii")

    try:
        if text("bridge_group") != group:
            return None
        error = f"{text('error_class')}: {text('error_message')}".rstrip(": ")
        return DeadLetter(
            place=f"{record.topic()}-{record.partition()}-{record.offset()}",
            topic=text("origin_topic"),
            partition=int(text("origin_partition")),
            offset=int(text("origin_offset")),
            handler=text("handler"),
            attempts=int(text("attempts")),
            reason=text("reason"),
            error=error,
            failed_at=int(text("failed_at")) / 1000,
        )
    except (KeyError, ValueError):
        # Another producer's: none of ours.
        return None


def _headers(record: Record) -> Iterable[tuple[str, bytes | None]]:
    try:
        return record.headers() or ()  # type: ignore[return-value]
    except Exception:
        # A header whose name is no UTF-8 cannot be read by Python's client.
        return ()
