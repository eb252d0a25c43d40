"""The Celery header `kafka`, which carries the deliveries of a message: as rows, or as columns if there are several."""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

from bridge.errors import MalformedDelivery
from bridge.formats.delivery import NO_ATTEMPTS, Batch, Dead, Delivery, Header, Headers, Message, Via
from bridge.formats.delivery_identity import make_log_identity, work_of
from bridge.formats.delivery_row import DeliveryMetadata, DeliveryRow, add_death, read_delivery, read_metadata_attempts
from bridge.formats.text_forms import to_bytes, to_headers, to_pairs, to_text
from bridge.formats.trace_context import TRACE
from lossless.transport.delayed_messages import JOINED, format_joined_count, make_joins_header


def read_counter(headers: Mapping[str, Any], name: str) -> int:
    """Return a counter from a message's headers; 0 if it is missing or no positive whole number."""
    value = headers.get(name)
    return value if type(value) is int and value > 0 else 0


def count_losses(headers: Mapping[str, Any]) -> int:
    """Return how many processes and workers died while they ran a message."""
    return read_counter(headers, "lost") + read_counter(headers, "restored")


#: Offset, timestamp, key, value, headers, and the metadata of a delivery.
RecordParts: TypeAlias = tuple[int, int | None, bytes | None, bytes | None, Headers, Mapping[str, Any]]


def columns_of(rows: Sequence[DeliveryRow]) -> dict[str, Any]:
    """Return rows as columns, as JSON-able data."""
    offsets, timestamps, keys, values, headers, dead, more = zip(*rows, strict=True)
    columns = {
        "offsets": _offset_runs(offsets),
        "timestamps": timestamps,
        "keys": _join_column(keys),
        "values": _join_column(values),
    }
    if any(headers):
        columns["headers"] = {str(at): to_pairs(found) for at, found in enumerate(headers) if found}
    if any(dead) or any(more):
        besides = enumerate(map(add_death, dead, more))
        columns["more"] = {str(at): found for at, found in besides if found}
    return columns


def _offset_runs(offsets: Sequence[int]) -> list[list[int]]:
    """Return each run of successive offsets as [first offset, length]."""
    first, last = offsets[0], offsets[-1]
    if last - first == len(offsets) - 1:
        return [[first, len(offsets)]]
    runs = [[first, 1]]
    for before, offset in pairwise(offsets):
        if offset == before + 1:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    return runs


def _join_column(parts: Sequence[bytes | None]) -> dict[str, Any] | None:
    """Return a column's values as one base64 text with their sizes; `None` if every value is missing."""
    if None not in parts:
        return {"sizes": list(map(len, parts)), "bytes": to_text(b"".join(parts))}  # type: ignore[arg-type]
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return {"sizes": [None if part is None else len(part) for part in parts], "bytes": to_text(b"".join(there))}


def from_columns(columns: Mapping[str, Any]) -> Iterable[RecordParts]:
    """Yield the parts of each record from columns that `columns_of` made.

    Raises:
        ValueError, KeyError, TypeError: they are no such columns.
    """
    timestamps = [None if found is None else int(found) for found in columns["timestamps"]]
    count = len(timestamps)
    headers: list[Headers] = [()] * count
    for at, found in (columns.get("headers") or {}).items():
        headers[_check_index(at, count)] = to_headers(found)
    more: list[Mapping[str, Any]] = [{}] * count
    for at, found in (columns.get("more") or {}).items():
        more[_check_index(at, count)] = found
    return zip(
        offsets_in(columns, count),
        timestamps,
        _split_column(columns["keys"], count),
        _split_column(columns["values"], count),
        headers,
        more,
        strict=True,
    )


def offsets_in(columns: Mapping[str, Any], count: int) -> Sequence[int]:
    """Return the offsets of columns, without decoding the rest.

    Raises:
        ValueError: they are not so many.
    """
    runs = [(int(first), int(length)) for first, length in columns["offsets"]]
    # Check the count before the runs are expanded: a damaged header must not fill the memory.
    if sum(length for _, length in runs) != count or any(length < 1 for _, length in runs):
        raise ValueError(f"its offsets are not {count}")
    if len(runs) == 1:
        return range(runs[0][0], runs[0][0] + count)
    return [offset for first, length in runs for offset in range(first, first + length)]


def _split_column(column: Mapping[str, Any] | None, count: int) -> Sequence[bytes | None]:
    if column is None:
        return [None] * count
    sizes, joined = column["sizes"], b64decode(column["bytes"], validate=True)
    ends = [0, *accumulate(size or 0 for size in sizes)]
    if len(sizes) != count or ends[-1] != len(joined) or ends != sorted(ends):
        raise ValueError("its sizes are not those of its bytes")
    return [
        None if size is None else joined[start:end] for size, (start, end) in zip(sizes, pairwise(ends), strict=True)
    ]


def _check_index(name: str, count: int) -> int:
    if not 0 <= int(name) < count:
        raise ValueError(f"it has no message {name}")
    return int(name)


#: The name of the header: one that no header of Celery, of a payload or of a record has. Celery merges a message's
#: headers over its own (celery/app/amqp.py).
HEADER: Final = "kafka"

#: Names of rows and columns: for records from their source topic, and for records from a retry or replay topic.
_ROWS: Final = ("messages", "again")
_COLUMNS: Final = ("columns", "again_columns")
#: Names of lists with an item for each delivery; each header has one of them.
LISTS: Final = ("timestamps", *_ROWS)
#: The errors that a foreign or damaged header causes in the readers.
_BROKEN: Final = Exception

_Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HeaderContents:
    """The place and the metadata of a header's deliveries, without their records.

    Attributes:
        via: the partition of a retry or replay topic by which all of it came; its offset means nothing.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    more: Mapping[int, Mapping[str, Any]]
    via: Via | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[str, Any]) -> "HeaderContents | None":
        """Return the contents of a Celery message's header; `None` if the bridge did not write it."""
        data = headers.get(HEADER)
        if not isinstance(data, Mapping):
            return None
        try:
            return cls(str(data.get("topic")), int(data["partition"]), *_contents(data), _via_in(data))
        except _BROKEN:
            return None

    def metadata(self) -> Iterator[DeliveryMetadata]:
        """Yield the metadata of each delivery, in the order of the offsets."""
        for at in range(len(self.offsets)):
            try:
                yield DeliveryMetadata.from_columns(self.more[at], self.via) if at in self.more else DeliveryMetadata()
            except _BROKEN:
                yield DeliveryMetadata()


# Writing


def header_of(
    topic: str,
    partition: int,
    cluster: str,
    group: str,
    topic_id: str,
    order: str | None,
    rows: Sequence[DeliveryRow],
    via: Via | None = None,
) -> _Json:
    """Return the header for records that are handed off, as JSON-able data.

    Parameters:
        topic, partition, topic_id: of their origin.
        via: the partition of a retry or replay topic by which all of them come (its offset means nothing); each row's
            `more` has its own offset there, as `Row.of` gives it.
    """
    where = _where(topic, partition, cluster, group, topic_id, order, via)
    if len(rows) == 1:
        return where | {_ROWS[via is not None]: [_row(*rows[0])]}
    return where | {_COLUMNS[via is not None]: columns_of(rows)}


def to_header(batch: Batch) -> _Json:
    """Return the header of a batch with its current state, as JSON-able data."""
    via = batch.via
    header = _where(batch.topic, batch.partition, batch.cluster, batch.group, batch.topic_id, batch.order, via)
    header[_ROWS[via is not None]] = [_row(*DeliveryRow.from_delivery(delivery)) for delivery in batch.deliveries]
    return header


def to_joining(batch: Batch, header: _Json, most: int) -> tuple[_Json, _Json]:
    """Return the header of a batch, and the header that lets it join others due at the same time
    (lossless/transport/delayed_messages.py).

    Parameters:
        header: the batch's, as `to_header` gives it.
        most: how many deliveries one message may carry then.
    """
    rows = _ROWS[batch.via is not None]
    whose = " ".join(str(part) for name, part in header.items() if name != rows)
    return {**header, JOINED: format_joined_count(len(batch.deliveries))}, make_joins_header(
        f"{batch.handler} {whose}", rows, most
    )


def _where(
    topic: str, partition: int, cluster: str, group: str, topic_id: str, order: str | None, via: Via | None
) -> _Json:
    place: _Json = {"topic": topic, "partition": partition, "cluster": cluster, "group": group, "topic_id": topic_id}
    if order is not None:
        place["order"] = order
    if via is not None:
        place["via"] = [via.topic, via.partition, via.topic_id]
    return place


def _row(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] | None,
    dead: Dead | None = None,
    more: Mapping[str, Any] | None = None,
) -> list[Any]:
    row = [offset, timestamp, to_text(key), to_text(value), to_pairs(headers) if headers else None]
    return [*row, add_death(dead, more)] if dead is not None or more else row


# Reading


def from_header(handler: str, data: object) -> Batch:
    """Return the batch that a header carries.

    Raises:
        MalformedDelivery: the header is not one that this project wrote.
    """
    if not isinstance(data, Mapping):
        raise MalformedDelivery(_malformed(handler, f"it is {type(data).__name__}, not an object"))
    try:
        return _batch(handler, data)
    except _BROKEN as error:
        raise MalformedDelivery(_malformed(handler, f"{type(error).__name__}: {error}")) from error


def _via_in(data: Mapping[str, Any]) -> Via | None:
    if "via" not in data:
        return None
    topic, partition, topic_id = data["via"]
    return Via(str(topic), int(partition), -1, str(topic_id))


def _contents(data: Mapping[str, Any]) -> tuple[Sequence[int], dict[int, Mapping[str, Any]]]:
    again = "via" in data
    if _COLUMNS[again] in data:
        columns = data[_COLUMNS[again]]
        more = {int(at): found for at, found in (columns.get("more") or {}).items()}
        return offsets_in(columns, len(columns["timestamps"])), more
    rows = data.get(_ROWS[again]) or ()
    return [int(row[0]) for row in rows], {at: row[5] for at, row in enumerate(rows) if len(row) > 5}


def _batch(handler: str, data: Mapping[str, Any]) -> Batch:
    topic, partition = str(data["topic"]), int(data["partition"])
    cluster, group, topic_id = str(data["cluster"]), str(data["group"]), str(data["topic_id"])
    via = _via_in(data)
    again = via is not None
    parts = from_columns(data[_COLUMNS[again]]) if _COLUMNS[again] in data else map(_from_row, data[_ROWS[again]])
    # This loop runs for each message and is measured: it makes in place what does not differ within a batch.
    start, log = f"{topic}-{partition}-", make_log_identity(cluster, group, topic_id)
    deliveries = []
    for offset, timestamp, key, value, headers, more in parts:
        record = (topic, partition, offset, key, value, headers, timestamp)
        work = f"{start}{offset}:{handler}"
        if not more and not again:
            deliveries.append(Delivery(Message(*record, 1, NO_ATTEMPTS, work, log), handler))
            continue
        runs = int(more.get("attempts", 0))
        if "again" in more:
            work = work_of(work, str(more["again"]))
        message = Message(*record, runs + 1, read_metadata_attempts(more), work, log)
        deliveries.append(read_delivery(message, handler, runs, more, via))
    if not deliveries:
        raise ValueError("it carries no message")
    if TRACE in data:
        trace = str(data[TRACE])
        for delivery in deliveries:
            if not delivery.trace:
                delivery.trace = trace
    if JOINED in data:
        deliveries = _once(deliveries)
    return Batch(
        handler=handler,
        topic=topic,
        partition=partition,
        deliveries=tuple(deliveries),
        cluster=cluster,
        group=group,
        topic_id=topic_id,
        order=data.get("order"),
    )


def _once(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return the deliveries by offset; of two for one offset, sent again after a crash, the one that ran more often."""
    by_offset = {
        delivery.message.offset: delivery for delivery in sorted(deliveries, key=lambda delivery: delivery.runs)
    }
    return [delivery for _, delivery in sorted(by_offset.items())]


def _from_row(row: Sequence[Any]) -> RecordParts:
    offset, timestamp, key, value, headers = row[:5]
    return (
        int(offset),
        None if timestamp is None else int(timestamp),
        to_bytes(key),
        to_bytes(value),
        to_headers(headers),
        row[5] if len(row) > 5 else {},
    )


def _malformed(handler: str, why: str) -> str:
    return (
        f"A message for {handler} has a `{HEADER}` header that the bridge did not write: {why}. "
        "Only the bridge may send it; call the handler's .delay() without that header."
    )
