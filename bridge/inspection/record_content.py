"""The content of any record: key, value and headers, read from Kafka on demand; or why Kafka gives none.

It needs no ledger: a record that no handler has ever seen has a content too.
"""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable, NoSuchRecord
from bridge.formats.delivery import Headers
from bridge.formats.delivery_identity import Place
from bridge.formats.delivery_row import make_row
from bridge.jobs.open_transactions import find_open_transactions
from bridge.kafka.clients import Record, admin_client
from bridge.kafka.partition_offsets import Extent, ExtentReader, group_unreadable
from bridge.kafka.record_reader import ReadBudget, ReadLimits, read_records
from bridge.kafka.topic_admin import read_topic_configs
from bridge.settings import Settings

#: The most that is read for one record: Kafka gives it with those behind it.
ONE_RECORD: Final = ReadLimits(records=100, bytes=500_000_000, seconds=10)


@dataclass(frozen=True, slots=True)
class RecordContent:
    """A record as Kafka has it.

    Attributes:
        timestamp: ms since the epoch; `None`: it has none.
        headers: the producer's; empty if they cannot be read.
        fault: why Kafka's client cannot read the whole record; empty: it can.
        first, end: the offsets that its partition has now; `end` is one more than the last.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)
    fault: str = ""
    first: int = 0
    end: int = 0

    @property
    def name(self) -> str:
        """Return the coordinates: `orders-3-1234`."""
        return f"{self.topic}-{self.partition}-{self.offset}"

    @classmethod
    def from_record(cls, record: Record, extent: Extent) -> "RecordContent":
        """Return the content of a record of a partition."""
        row = make_row(record)
        return cls(
            extent.topic,
            extent.partition,
            row.offset,
            row.timestamp,
            row.key,
            row.value,
            tuple((name, None if value is None else bytes(value)) for name, value in row.headers or ()),
            "" if row.dead is None else row.dead.failure.error_message,
            extent.first,
            extent.end,
        )


class _Unread(NamedTuple):
    """A record that was asked for and not given."""

    place: Place
    offset: int

    def __str__(self) -> str:
        return f"{self.place[0]}-{self.place[1]}-{self.offset}"


def read_record_content(settings: Settings, topic: str, partition: int, offset: int) -> RecordContent:
    """Return a record with its content.

    Raises:
        NoSuchRecord: Kafka gives none there; the message says why, in one sentence for each cause.
        KafkaUnavailable: Kafka did not answer, or cannot read the partition.
    """
    asked = _Unread((topic, partition), offset)
    extent = find_extent(settings, topic, partition)
    if offset < extent.first:
        raise NoSuchRecord(
            f"{asked} was deleted: Kafka's first record of {topic}-{partition} has offset {extent.first}, by the "
            "topic's retention or because somebody deleted records."
        )
    if offset >= extent.end:
        raise NoSuchRecord(_explain_end(settings, asked, extent))
    budget = ReadBudget(ONE_RECORD)
    for record in read_records(settings, {asked.place: offset}, {asked.place: offset + 1}, budget):
        if record.offset() == offset:
            return RecordContent.from_record(record, extent)
    if budget.reached:
        raise KafkaUnavailable(f"Kafka does not give {asked} within {ONE_RECORD.seconds:g} seconds. Try again.")
    raise NoSuchRecord(_explain_gap(settings, asked))


def find_extent(settings: Settings, topic: str, partition: int) -> Extent:
    """Return the offsets of a partition.

    Raises:
        NoSuchRecord: there is no such topic, or no such partition of it.
        KafkaUnavailable: Kafka did not answer, or cannot read the partition.
    """
    reader = ExtentReader()
    extents = reader.read(settings, [topic])
    if (why := reader.unreadable.get((topic, partition))) is not None:
        (words,) = group_unreadable({(topic, partition): why})
        raise KafkaUnavailable(
            f"Kafka answers, and cannot read {words}. Start the broker that had it; `bridge status` shows all that "
            "cannot be read."
        )
    found = next((each for each in extents if each.partition == partition), None)
    if found is not None:
        return found
    count = len(extents) + len(reader.unreadable)
    if not count:
        raise NoSuchRecord(f"Kafka has no topic {topic}: `bridge topics` lists those of the group.")
    raise NoSuchRecord(f"{topic} has no partition {partition}: its partitions are 0 to {count - 1}.")


def _explain_end(settings: Settings, asked: _Unread, extent: Extent) -> str:
    for transaction in find_open_transactions(settings, [asked.place]):
        if asked.offset < transaction.offset + transaction.records:
            return (
                f"{asked} lies behind an open transaction of a producer, which began at offset {transaction.offset}: "
                "Kafka gives it to no consumer until that ends."
            )
    return f"{asked} is not written yet: the next record of {extent.topic}-{extent.partition} gets offset {extent.end}."


def _explain_gap(settings: Settings, asked: _Unread) -> str:
    """Return why Kafka has no record at an offset between two others."""
    everything = replace(settings, kafka={**settings.kafka, "isolation.level": "read_uncommitted"})
    budget = ReadBudget(ONE_RECORD)
    uncommitted = read_records(everything, {asked.place: asked.offset}, {asked.place: asked.offset + 1}, budget)
    if any(record.offset() == asked.offset for record in uncommitted):
        return f"{asked} was written in a transaction that its producer aborted: no consumer gets it."
    configs = read_topic_configs(admin_client(settings.kafka), [asked.place[0]])
    if "compact" in configs.get(asked.place[0], {}).get("cleanup.policy", ""):
        return (
            f"{asked} holds no record any more: compaction has removed it, since its key has a later record; or it was "
            "the marker of a transaction, an entry of Kafka's own."
        )
    return f"{asked} holds the marker of a transaction, an entry of Kafka's own: no record was ever there."


def format_content(content: RecordContent, value: bytes | None, schema: str = "") -> Iterator[str]:
    """Yield the lines of a content for people: text as it is, other bytes in hexadecimal.

    Parameters:
        value: the value for people.
        schema: the name of the schema that wrote it, if one did.
    """
    if content.fault:
        yield f"  {content.fault}"
    yield f"  key: {_format_bytes(content.key)}"
    for name, data in content.headers:
        yield f"  header {name}: {_format_bytes(data)}"
    yield f"  value{f' ({schema})' if schema else ''}:"
    yield _format_bytes(value, absent="(none: a tombstone)")


def make_content_data(content: RecordContent, value: bytes | None, schema: str = "") -> dict[str, Any]:
    """Return a content as JSON-able data: bytes as text if they are UTF-8, else as base64."""
    return {
        "value": encode_bytes(value),
        "schema": schema or None,
        "headers": [{"name": name, "value": encode_bytes(data)} for name, data in content.headers],
        "fault": content.fault or None,
    }


def encode_bytes(data: bytes | None) -> dict[str, Any] | None:
    """Return bytes in JSON without loss: as text if they are UTF-8."""
    if data is None:
        return None
    try:
        return {"encoding": "utf-8", "data": data.decode(), "size": len(data)}
    except UnicodeDecodeError:
        return {"encoding": "base64", "data": b64encode(data).decode(), "size": len(data)}


def _format_bytes(data: bytes | None, absent: str = "(none)") -> str:
    if data is None:
        return absent
    try:
        return data.decode() or "(empty)"
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
