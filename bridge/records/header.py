"""The one Celery header that carries all that is Kafka's: its two forms are known here and nowhere else.

*Rows*, a list a message (`messages`): what carries one message, and what a worker sends again. *Columns*, the parts of
many messages beside each other (`columns`): what a bridge hands off together. One JSON string has all keys, one all
values, in base64 and told apart by their sizes, so that a batch costs little more to write and read than one message.
What stands beside them (topic, partition …) is the same for both, and readers take either.

What came by a record of a retry or replay topic stands under names of its own: a worker of an older version, which
would look for its fate in the wrong place, leaves it to others.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from bridge.errors import MalformedDelivery
from bridge.records.as_text import to_bytes, to_headers, to_pairs, to_text
from bridge.records.attempts import NONE, Attempts
from bridge.records.failure import Failure
from bridge.records.message import Batch, Dead, Delivery, Header, Headers, Message, Via
from bridge.records.naming import origin
from bridge.records.outgoing import Outgoing
from lossless.transport.joining import JOINED, joined, joining

#: A name of its own, so that neither a payload nor a record's header can be taken for one of Celery's own
#: (celery/app/amqp.py merges headers over its own).
HEADER: Final = "kafka"

#: Rows and columns, of what came straight from its source, and of what came by a retry or replay topic.
_ROWS: Final = ("messages", "again")
_COLUMNS: Final = ("columns", "again_columns")
#: Names of lists that have an item for each delivery: one of them is in each header.
LISTS: Final = ("timestamps", *_ROWS)
#: What is written of a delivery beside its record, where it is not nothing.
_MORE: Final = ("number", "first_failed_at", "publish_tries", "error", "ended", "due")
#: What another's header, or a broken one, makes the readers raise.
_BROKEN: Final = (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError)

_Json: TypeAlias = dict[str, Any]


class Row(NamedTuple):
    """A record as it is about to be handed off; one that is dead from the start has `dead`.

    Attributes:
        more: what is known of its delivery besides, where that is not new (`Row.of`).
    """

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    dead: Dead | None = None
    more: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, delivery: Delivery) -> "Row":
        """A delivery that has a past: parked, or sent back."""
        message = delivery.message
        more = _more(delivery)
        return cls(
            message.offset, message.timestamp, message.key, message.value, message.headers, delivery.dead, more or None
        )

    @property
    def size(self) -> int:
        """Bytes of its key, value and headers."""
        carried = sum(len(name) + len(given or b"") for name, given in self.headers) if self.headers else 0
        return len(self.key or b"") + len(self.value or b"") + carried


class Told(NamedTuple):
    """What a header says of one delivery beside its record.

    Attributes:
        runs: how often the handler ran for it.
        attempts: what became of that.
        number: how often it was parked or replayed.
        error: the last failure in words.
        first_failed_at: milliseconds since the epoch, or None.
        dead: why it is dead, where Kafka has not taken its dead letter yet; else empty.
        via: the record of a retry or replay topic by which it came.
    """

    runs: int = 0
    attempts: Attempts = NONE
    number: int = 0
    error: str = ""
    first_failed_at: int | None = None
    dead: str = ""
    via: Via | None = None


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
                yield _told(self.more[at], self.via) if at in self.more else Told()
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
    return where | {_COLUMNS[via is not None]: _columns(rows)}


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


def _more(delivery: Delivery) -> _Json:
    """What is known of a delivery beside its record.

    `attempts` and `failures` are what the first version has: how often it ran, and how many runs spent a retry.
    """
    more: _Json = {name: value for name in _MORE if (value := getattr(delivery, name))}
    if delivery.via is not None:
        more["via"] = delivery.via.offset
    if delivery.after is not None:
        more["after"] = delivery.after
    if delivery.outgoing:
        more["outgoing"] = [each.to_data() for each in delivery.outgoing]
    if delivery.runs or any(delivery.attempts):
        failed, lost, postponed, replayed = delivery.attempts
        counts = {"attempts": delivery.runs, "failures": failed, "lost": lost, "replayed": replayed}
        more.update((name, count) for name, count in counts.items() if count)
        # Always: without it, it is what older versions count as neither.
        more["postponed"] = postponed
    return more


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
    return [*row, _besides(dead, more)] if dead is not None or more else row


def _besides(dead: Dead | None, more: Mapping[str, Any] | None) -> _Json:
    return {**(more or {}), **({} if dead is None else {"dead": {"reason": dead.reason, **dead.failure.to_data()}})}


def _columns(rows: Sequence[Row]) -> _Json:
    offsets, timestamps, keys, values, headers, dead, more = zip(*rows, strict=True)
    columns = {
        "offsets": _runs(offsets),
        "timestamps": timestamps,
        "keys": _joined(keys),
        "values": _joined(values),
    }
    if any(headers):
        columns["headers"] = {str(at): to_pairs(found) for at, found in enumerate(headers) if found}
    if any(dead) or any(more):
        besides = enumerate(map(_besides, dead, more))
        columns["more"] = {str(at): found for at, found in besides if found}
    return columns


def _runs(offsets: Sequence[int]) -> list[list[int]]:
    """Each first offset of a run, and how many follow one another."""
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


def _joined(parts: Sequence[bytes | None]) -> _Json | None:
    """All of a column in one text, and the size of each; `None` where no message has any."""
    if None not in parts:
        return {"sizes": list(map(len, parts)), "bytes": to_text(b"".join(parts))}  # type: ignore[arg-type]
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return {"sizes": [None if part is None else len(part) for part in parts], "bytes": to_text(b"".join(there))}


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
        return _offsets(columns, len(columns["timestamps"])), more
    rows = data.get(_ROWS[again]) or ()
    return [int(row[0]) for row in rows], {at: row[5] for at, row in enumerate(rows) if len(row) > 5}


def _batch(handler: str, data: Mapping[str, Any]) -> Batch:
    topic, partition = str(data["topic"]), int(data["partition"])
    cluster, group, topic_id = str(data["cluster"]), str(data["group"]), str(data["topic_id"])
    via = _via_in(data)
    again = via is not None
    parts = _from_columns(data[_COLUMNS[again]]) if _COLUMNS[again] in data else map(_from_row, data[_ROWS[again]])
    # Once a batch: what is made for each message is made in place here, and measured.
    start, log = f"{topic}-{partition}-", origin(cluster, group, topic_id)
    deliveries = []
    for offset, timestamp, key, value, headers, more in parts:
        runs = int(more.get("attempts", 0)) if more else 0
        attempts = _attempts(more) if more else NONE
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
            f"{start}{offset}:{handler}",
            log,
        )
        known = more or via is not None
        deliveries.append(_delivery(message, handler, runs, more, via) if known else Delivery(message, handler))
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


#: Offset, timestamp, key, value, headers, and what else is known of a delivery.
_Parts: TypeAlias = tuple[int, int | None, bytes | None, bytes | None, Headers, Mapping[str, Any]]


def _from_row(row: Sequence[Any]) -> _Parts:
    offset, timestamp, key, value, headers = row[:5]
    return (
        int(offset),
        None if timestamp is None else int(timestamp),
        to_bytes(key),
        to_bytes(value),
        to_headers(headers),
        row[5] if len(row) > 5 else {},
    )


def _from_columns(columns: Mapping[str, Any]) -> Iterable[_Parts]:
    timestamps = [None if found is None else int(found) for found in columns["timestamps"]]
    count = len(timestamps)
    headers: list[Headers] = [()] * count
    for at, found in (columns.get("headers") or {}).items():
        headers[_at(at, count)] = to_headers(found)
    more: list[Mapping[str, Any]] = [{}] * count
    for at, found in (columns.get("more") or {}).items():
        more[_at(at, count)] = found
    return zip(
        _offsets(columns, count),
        timestamps,
        _apart(columns["keys"], count),
        _apart(columns["values"], count),
        headers,
        more,
        strict=True,
    )


def _offsets(columns: Mapping[str, Any], count: int) -> Sequence[int]:
    runs = [(int(first), int(length)) for first, length in columns["offsets"]]
    # Before they are written out: what is broken must not fill the memory.
    if sum(length for _, length in runs) != count or any(length < 1 for _, length in runs):
        raise ValueError(f"its offsets are not {count}")
    if len(runs) == 1:
        return range(runs[0][0], runs[0][0] + count)
    return [offset for first, length in runs for offset in range(first, first + length)]


def _apart(column: Mapping[str, Any] | None, count: int) -> Sequence[bytes | None]:
    if column is None:
        return [None] * count
    sizes, joined = column["sizes"], b64decode(column["bytes"], validate=True)
    ends = [0, *accumulate(size or 0 for size in sizes)]
    if len(sizes) != count or ends[-1] != len(joined) or ends != sorted(ends):
        raise ValueError("its sizes are not those of its bytes")
    return [
        None if size is None else joined[start:end] for size, (start, end) in zip(sizes, pairwise(ends), strict=True)
    ]


def _at(name: str, count: int) -> int:
    if not 0 <= int(name) < count:
        raise ValueError(f"it has no message {name}")
    return int(name)


def _delivery(message: Message, handler: str, runs: int, more: Mapping[str, Any], via: Via | None = None) -> Delivery:
    dead = more.get("dead")
    return Delivery(
        message=message,
        handler=handler,
        number=int(more.get("number", 0)),
        runs=runs,
        attempts=message.attempts,
        first_failed_at=int(more.get("first_failed_at") or 0) or None,
        dead=None if dead is None else Dead(str(dead["reason"]), Failure.from_data(dead)),
        publish_tries=int(more.get("publish_tries", 0)),
        error=str(more.get("error", "")),
        ended=str(more.get("ended") or ""),
        due=float(more["due"]) if more.get("due") else None,
        via=None if via is None else via._replace(offset=int(more["via"])),
        after=int(more["after"]) if more.get("after") is not None else None,
        outgoing=tuple(map(Outgoing.from_data, more.get("outgoing") or ())),
    )


def _attempts(more: Mapping[str, Any]) -> Attempts:
    failed, lost = int(more.get("failures", 0)), int(more.get("lost", 0))
    # An older version says how often it ran, and how many of those runs failed.
    postponed = more["postponed"] if "postponed" in more else max(0, int(more.get("attempts", 0)) - failed)
    return Attempts(failed, lost, int(postponed), int(more.get("replayed", 0)))


def _told(more: Mapping[str, Any], via: Via | None) -> Told:
    first, dead = more.get("first_failed_at"), more.get("dead") or {}
    return Told(
        int(more.get("attempts", 0)),
        _attempts(more),
        int(more.get("number", 0)),
        str(more.get("error", "")),
        int(first) if first else None,
        str(dead.get("reason", "")),
        None if via is None else via._replace(offset=int(more["via"])),
    )


def _malformed(handler: str, why: str) -> str:
    return (
        f"A message for {handler} has a `{HEADER}` header that the bridge did not write: {why}. "
        "Only the bridge may send it; call the handler's .delay() without that header."
    )
