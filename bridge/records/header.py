"""The one Celery header that carries all that is Kafka's: its two forms are known here and nowhere else.

*Rows*, a list a message (`messages`): what carries one message, and what a worker sends again. *Columns*, the parts of
many messages beside each other (`columns`, columns.py): what a bridge hands off together. What stands beside them
(topic, partition …) is the same for both, and readers take either.

What came by a record of a retry or replay topic stands under names of its own: a worker of an older version, which
would look for its fate in the wrong place, leaves it to others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from bridge.errors import MalformedDelivery
from bridge.records.as_text import to_bytes, to_headers, to_pairs, to_text
from bridge.records.attempts import NONE
from bridge.records.columns import Parts, columns_of, from_columns, offsets_in
from bridge.records.message import Batch, Dead, Delivery, Header, Message, Via
from bridge.records.more import Told, attempts_in, delivery_of, with_dead
from bridge.records.naming import origin, work_of
from bridge.records.row import Row
from lossless.transport.joining import JOINED, joined, joining

#: A name of its own, so that neither a payload nor a record's header can be taken for one of Celery's own
#: (celery/app/amqp.py merges headers over its own).
HEADER: Final = "kafka"

#: Rows and columns, of what came straight from its source, and of what came by a retry or replay topic.
_ROWS: Final = ("messages", "again")
_COLUMNS: Final = ("columns", "again_columns")
#: Names of lists that have an item for each delivery: one of them is in each header.
LISTS: Final = ("timestamps", *_ROWS)
#: What another's header, or a broken one, makes the readers raise.
_BROKEN: Final = Exception

_Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a header carries, without its records being read.

    Attributes:
        via: the partition of a retry or replay topic by which all of it came; its offset means nothing.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    more: Mapping[int, Mapping[str, Any]]
    via: Via | None = None

    @classmethod
    def of(cls, headers: Mapping[str, Any]) -> "Contents | None":
        """Those of a Celery message with these headers; `None` where it carries nothing of ours."""
        data = headers.get(HEADER)
        if not isinstance(data, Mapping):
            return None
        try:
            return cls(str(data.get("topic")), int(data["partition"]), *_contents(data), _via_in(data))
        except _BROKEN:
            return None

    def tell(self) -> Iterator[Told]:
        """What is said of each delivery, in the order of the offsets."""
        for at in range(len(self.offsets)):
            try:
                yield Told.of(self.more[at], self.via) if at in self.more else Told()
            except _BROKEN:
                yield Told()


# Writing


def header_of(
    topic: str,
    partition: int,
    cluster: str,
    group: str,
    topic_id: str,
    order: str | None,
    rows: Sequence[Row],
    via: Via | None = None,
) -> _Json:
    """The header of records that are handed off, as JSON-able data.

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
    """The header of a batch as it is now, as JSON-able data."""
    via = batch.via
    header = _where(batch.topic, batch.partition, batch.cluster, batch.group, batch.topic_id, batch.order, via)
    header[_ROWS[via is not None]] = [_row(*Row.of(delivery)) for delivery in batch.deliveries]
    return header


def to_joining(batch: Batch, most: int) -> tuple[_Json, _Json]:
    """The same for a message that joins what is due with it, and what says so (lossless/transport/joining.py).

    Parameters:
        most: how many deliveries one message may carry then.
    """
    header = to_header(batch)
    rows = _ROWS[batch.via is not None]
    whose = " ".join(str(part) for name, part in header.items() if name != rows)
    return {**header, JOINED: joined(len(batch.deliveries))}, joining(f"{batch.handler} {whose}", rows, most)


def _where(
    topic: str, partition: int, cluster: str, group: str, topic_id: str, order: str | None, via: Via | None
) -> _Json:
    found: _Json = {"topic": topic, "partition": partition, "cluster": cluster, "group": group, "topic_id": topic_id}
    if order is not None:
        found["order"] = order
    if via is not None:
        found["via"] = [via.topic, via.partition, via.topic_id]
    return found


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
    return [*row, with_dead(dead, more)] if dead is not None or more else row


# Reading


def from_header(handler: str, data: object) -> Batch:
    """The batch that a header carries.

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
    # Once a batch: what is made for each message is made in place here, and measured.
    start, log = f"{topic}-{partition}-", origin(cluster, group, topic_id)
    deliveries = []
    for offset, timestamp, key, value, headers, more in parts:
        runs = int(more.get("attempts", 0)) if more else 0
        attempts = attempts_in(more) if more else NONE
        message = Message(
            topic,
            partition,
            offset,
            key,
            value,
            headers,
            timestamp,
            runs + 1,
            attempts,
            work_of(f"{start}{offset}:{handler}", str(more["again"]))
            if more and "again" in more
            else f"{start}{offset}:{handler}",
            log,
        )
        known = more or via is not None
        deliveries.append(delivery_of(message, handler, runs, more, via) if known else Delivery(message, handler))
    if not deliveries:
        raise ValueError("it carries no message")
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
    """In the order of their offsets; of one that was sent twice, after a crash, what ran more often."""
    found = {each.message.offset: each for each in sorted(deliveries, key=lambda each: each.runs)}
    return [each for _, each in sorted(found.items())]


def _from_row(row: Sequence[Any]) -> Parts:
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
