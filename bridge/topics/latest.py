"""The latest dead letters of a group, with what each says of its delivery."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bridge.kafka import Record, headers_of
from bridge.settings import Settings
from bridge.topics.extents import extents
from bridge.topics.names import TopicNames
from bridge.topics.readback import records

#: Dead letters of a partition that are looked through, the latest.
RECENT: Final = 2_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter: where it lies, whose delivery it was, and why that died (times in seconds, Unix).

    `topic_id` is the id of the log of its origin; empty if an older version wrote it.
    """

    place: str
    topic: str
    partition: int
    offset: int
    handler: str
    attempts: int
    reason: str
    error: str
    failed_at: float
    topic_id: str = ""


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
    found = extents(settings, [TopicNames.of(settings).dead_letters(topic)])
    starts = {(e.topic, e.partition): max(e.first, e.end - RECENT) for e in found if e.end > e.first}
    ends = {(e.topic, e.partition): e.end for e in found if e.end > e.first}
    if not starts:
        return Latest((), False)
    letters = [letter for record in records(settings, starts, ends) if (letter := _letter(record, settings.group))]
    more = any(e.end - RECENT > e.first for e in found)
    return Latest(tuple(letter for letter in letters if letter.topic == topic), more)


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
            topic_id=(headers.get("origin_topic_id") or b"").decode("ascii"),
        )
    except (KeyError, ValueError):
        # Another producer's: none of ours.
        return None


def _headers(record: Record) -> Iterable[tuple[str, bytes | None]]:
    try:
        return headers_of(record)  # type: ignore[no-any-return]
    except Exception:
        # A header whose name is no UTF-8 cannot be read by Python's client.
        return ()
