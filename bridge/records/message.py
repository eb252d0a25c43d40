"""A message, a delivery of it, and the forms in which they travel through Celery."""

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import MalformedDelivery
from bridge.records.failure import Failure, cut
from bridge.records.settled import settle_with

#: The one Celery header that carries all that is Kafka's, so that neither a payload nor a record's
#: header can be taken for one of Celery's own (celery/app/amqp.py merges headers over its own).
HEADER = "kafka"

#: Longest text of a failure that travels with a delivery that runs again.
ERROR_LENGTH = 300

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A Kafka record as a handler sees it.

    Attributes:
        topic, partition, offset: where the record first lay.
        key, value: byte for byte as produced; `None` as in Kafka.
        headers: the producer's own, in order, names may repeat.
        timestamp: milliseconds since the epoch, or `None` if the record has none.
        attempt: 1 for the first run of the handler, counted over every kind of retry.
        delivery: the identity of the delivery, where a handler was given this message.
        origin: what tells that identity from the same one of another Kafka or group, or of a topic that was
            deleted and made again.
    """

    topic: str
    partition: int
    offset: int
    # Not in the repr, which loggers and error collectors take of whatever they meet.
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    timestamp: int | None = None
    attempt: int = field(default=1, compare=False)
    delivery: str = field(default="", compare=False)
    origin: str = field(default="", compare=False, repr=False)

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or `None`."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def settle_with(self, session: Any) -> None:
        """Write "done" in the handler's own database transaction, so that work and mark commit or roll back together.

        A mark made by work that was rolled back does not count. After a crash between the commit and the ledger's
        mark, the delivery comes again; this then ends the handler before its work is done twice.

        Parameters:
            session: a SQLAlchemy session (or connection) in which the handler does its work, or Django's
                `connection` inside `transaction.atomic()`.

        Raises:
            AlreadySettled: the work was committed by an earlier run; let it pass.
        """
        # A message that a test has made by hand is of no handler.
        settle_with(session, self.delivery or self.coordinates, self.origin)

    @property
    def coordinates(self) -> str:
        """`orders-3-1234`: the record's place in Kafka."""
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True)
class Dead:
    """Why a delivery is dead: decided, and perhaps not yet acknowledged by Kafka."""

    reason: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for one handler.

    Attributes:
        number: how often it was parked or replayed; part of the Celery task id from the first time on.
        attempts: how often the handler ran for it so far.
        failures: how many of those spent a retry.
        first_failed_at: milliseconds since the epoch.
        dead: set when it is decided that it is dead, until Kafka has the dead letter.
        publish_tries: how often publishing that dead letter has failed.
        error: the last failure in words, cut to `ERROR_LENGTH` characters, for whoever asks how it stands.
        ended: "done" or "dead" when it has ended so, until the ledger has the mark: it does not run again.
        due: seconds since the epoch before which it must not run again.
    """

    message: Message
    handler: str
    number: int = 0
    attempts: int = 0
    failures: int = 0
    first_failed_at: int | None = None
    dead: Dead | None = None
    publish_tries: int = 0
    error: str = ""
    ended: str = ""
    due: float | None = None

    @property
    def identity(self) -> str:
        """`orders-3-1234:orders.handlers.charge`; the same through every retry, park and replay."""
        return f"{self.message.coordinates}:{self.handler}"

    @property
    def task_id(self) -> str:
        """The Celery task id: the identity, and `#n` from the first park or replay on."""
        return f"{self.identity}#{self.number}" if self.number else self.identity

    @property
    def topic_id(self) -> str:
        """The id of the log that the message lay in; empty for a message that a test has made by hand."""
        return self.message.origin.rpartition(" ")[2]

    def failed(self, failure: Failure, *, spent: bool) -> "Delivery":
        """This delivery after one more run that did not end well."""
        return replace(
            self,
            attempts=self.attempts + 1,
            failures=self.failures + (1 if spent else 0),
            first_failed_at=self.first_failed_at or failure.failed_at,
            error=cut(str(failure), ERROR_LENGTH),
        )

    def __str__(self) -> str:
        return self.identity


@dataclass(frozen=True, slots=True)
class Batch:
    """What one Celery message carries: deliveries of one handler and one partition, in order; often just one.

    Attributes:
        cluster, group, topic_id: with topic and partition, where the ledger keeps their fates.
        order: "key" or "partition" where messages must run one after another, else `None`.
    """

    handler: str
    topic: str
    partition: int
    deliveries: tuple[Delivery, ...]
    cluster: str = ""
    group: str = ""
    topic_id: str = ""
    order: str | None = None

    @property
    def offsets(self) -> list[int]:
        """The offsets of its messages, in order."""
        return [delivery.message.offset for delivery in self.deliveries]

    @property
    def task_id(self) -> str:
        """The Celery task id: that of its only delivery, or `orders-3-1200..1399:orders.handlers.charge`."""
        if len(self.deliveries) == 1:
            return self.deliveries[0].task_id
        return batch_id(self.topic, self.partition, self.offsets, self.handler)

    def holding(self, deliveries: Iterable[Delivery]) -> "Batch":
        """A batch of the same partition and handler with other deliveries."""
        return replace(self, deliveries=tuple(deliveries))

    def __str__(self) -> str:
        return self.task_id


def batch_id(topic: str, partition: int, offsets: Sequence[int], handler: str) -> str:
    """The Celery task id for these offsets of a partition, ascending."""
    if len(offsets) == 1:
        return f"{topic}-{partition}-{offsets[0]}:{handler}"
    return f"{topic}-{partition}-{offsets[0]}..{offsets[-1]}:{handler}"


def label(topic: str, partition: int, offsets: Sequence[int]) -> str:
    """What Flower and the logs show as a task's arguments."""
    if len(offsets) == 1:
        return f"({topic}-{partition}-{offsets[0]})"
    return f"({topic}-{partition}-{offsets[0]}..{offsets[-1]}, {len(offsets)} messages)"


def row(
    offset: int, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Iterable[Header] | None
) -> list[Any]:
    """A message as JSON-able data; payloads are base64, never parsed."""
    return [
        offset,
        timestamp,
        None if key is None else b2a_base64(key, newline=False).decode("ascii"),
        None if value is None else b2a_base64(value, newline=False).decode("ascii"),
        [[name, _text(given)] for name, given in headers] if headers else None,
    ]


def dead_row(row: list[Any], dead: Dead) -> list[Any]:
    """A row of which it is decided that it is dead, and that no handler sees."""
    return [*row, {"dead": _dead(dead)}]


def to_header(batch: Batch) -> dict[str, Any]:
    """A batch as JSON-able data for the `kafka` header."""
    rows = [_row(delivery) for delivery in batch.deliveries]
    return header_of(batch.topic, batch.partition, batch.cluster, batch.group, batch.topic_id, batch.order, rows)


def header_of(
    topic: str, partition: int, cluster: str, group: str, topic_id: str, order: str | None, rows: list[list[Any]]
) -> dict[str, Any]:
    """The `kafka` header of messages that are rows already (`row`)."""
    data = {
        "topic": topic,
        "partition": partition,
        "cluster": cluster,
        "group": group,
        "topic_id": topic_id,
        "messages": rows,
    }
    if order is not None:
        data["order"] = order
    return data


def _row(delivery: Delivery) -> list[Any]:
    message = delivery.message
    data = row(message.offset, message.timestamp, message.key, message.value, message.headers)
    more: dict[str, Any] = {
        name: value
        for name in ("number", "attempts", "failures", "first_failed_at", "publish_tries", "error", "ended", "due")
        if (value := getattr(delivery, name))
    }
    if delivery.dead is not None:
        more["dead"] = _dead(delivery.dead)
    return [*data, more] if more else data


def _dead(dead: Dead) -> dict[str, Any]:
    return {"reason": dead.reason, **dead.failure.to_data()}


def from_header(handler: str, data: object) -> Batch:
    """The batch that `to_header` wrote.

    Raises:
        MalformedDelivery: the header is not one that this project wrote.
    """
    if not isinstance(data, Mapping):
        raise MalformedDelivery(_malformed(handler, f"it is {type(data).__name__}, not an object"))
    try:
        return _batch(handler, data)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise MalformedDelivery(_malformed(handler, f"{type(error).__name__}: {error}")) from error


def _batch(handler: str, data: Mapping[str, Any]) -> Batch:
    topic, partition = str(data["topic"]), int(data["partition"])
    cluster, group, topic_id = str(data["cluster"]), str(data["group"]), str(data["topic_id"])
    origin = f"{cluster} {group} {topic_id}"
    deliveries = tuple(_delivery(handler, topic, partition, origin, found) for found in data["messages"])
    if not deliveries:
        raise ValueError("it carries no message")
    return Batch(
        handler=handler,
        topic=topic,
        partition=partition,
        deliveries=deliveries,
        cluster=cluster,
        group=group,
        topic_id=topic_id,
        order=data.get("order"),
    )


def _delivery(handler: str, topic: str, partition: int, origin: str, data: Sequence[Any]) -> Delivery:
    offset, timestamp, key, value, headers = data[:5]
    more = data[5] if len(data) > 5 else {}
    attempts = int(more.get("attempts", 0))
    message = Message(
        topic=topic,
        partition=partition,
        offset=int(offset),
        timestamp=None if timestamp is None else int(timestamp),
        key=_bytes(key),
        value=_bytes(value),
        headers=tuple((str(name), _bytes(given)) for name, given in headers) if headers else (),
        attempt=attempts + 1,
        delivery=f"{topic}-{partition}-{offset}:{handler}",
        origin=origin,
    )
    if not more:
        return Delivery(message, handler)
    dead = more.get("dead")
    return Delivery(
        message=message,
        handler=handler,
        number=int(more.get("number", 0)),
        attempts=attempts,
        failures=int(more.get("failures", 0)),
        first_failed_at=int(more.get("first_failed_at") or 0) or None,
        dead=None if dead is None else Dead(str(dead["reason"]), Failure.from_data(dead)),
        publish_tries=int(more.get("publish_tries", 0)),
        error=str(more.get("error", "")),
        ended=str(more.get("ended") or ""),
        due=float(more["due"]) if more.get("due") else None,
    )


def _malformed(handler: str, why: str) -> str:
    return (
        f"A message for {handler} has a `{HEADER}` header that the bridge did not write: {why}. "
        "Only the bridge may send it; call the handler's .delay() without that header."
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else b2a_base64(value, newline=False).decode("ascii")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value, validate=True)
