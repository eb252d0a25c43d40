"""A message, a delivery of it, and the forms in which they travel through Celery."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import MalformedDelivery
from bridge.failure import Failure

#: The one Celery header that carries all that is Kafka's, so that neither a payload nor a record's
#: header can be taken for one of Celery's own (celery/app/amqp.py merges headers over its own).
HEADER = "kafka"

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A Kafka record as a handler sees it.

    Attributes:
        topic, partition, offset: where the record first lay.
        key, value: byte for byte as produced; `None` as in Kafka.
        headers: the producer's own, in order, names may repeat.
        timestamp: milliseconds since the epoch, or `None` if the record has none.
        attempt: 1 for the first run of the handler, counted over every kind of retry.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    attempt: int = field(default=1, compare=False)

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or `None`."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

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
    """

    message: Message
    handler: str
    number: int = 0
    attempts: int = 0
    failures: int = 0
    first_failed_at: int | None = None
    dead: Dead | None = None
    publish_tries: int = 0

    @property
    def identity(self) -> str:
        """`orders-3-1234:orders.handlers.charge`; the same through every retry, park and replay."""
        return f"{self.message.coordinates}:{self.handler}"

    @property
    def task_id(self) -> str:
        """The Celery task id: the identity, and `#n` from the first park or replay on."""
        return f"{self.identity}#{self.number}" if self.number else self.identity

    def failed(self, failure: Failure, *, spent: bool) -> "Delivery":
        """This delivery after one more run that did not end well."""
        return replace(
            self,
            attempts=self.attempts + 1,
            failures=self.failures + (1 if spent else 0),
            first_failed_at=self.first_failed_at or failure.failed_at,
        )

    def __str__(self) -> str:
        return self.identity


def to_header(delivery: Delivery) -> dict[str, Any]:
    """A delivery as JSON-able data for the `kafka` header; payloads are base64, never parsed."""
    message = delivery.message
    data: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _text(message.key),
        "value": _text(message.value),
    }
    if message.headers:
        data["headers"] = [[name, _text(value)] for name, value in message.headers]
    for name in ("number", "attempts", "failures", "first_failed_at", "publish_tries"):
        if value := getattr(delivery, name):
            data[name] = value
    if delivery.dead is not None:
        data["dead"] = {"reason": delivery.dead.reason, **delivery.dead.failure.to_data()}
    return data


def from_header(handler: str, data: object) -> Delivery:
    """The delivery that `to_header` wrote.

    Raises:
        MalformedDelivery: the header is not one that this project wrote.
    """
    if not isinstance(data, Mapping):
        raise MalformedDelivery(_malformed(handler, f"it is {type(data).__name__}, not an object"))
    try:
        return _delivery(handler, data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MalformedDelivery(_malformed(handler, f"{type(error).__name__}: {error}")) from error


def _delivery(handler: str, data: Mapping[str, Any]) -> Delivery:
    attempts = int(data.get("attempts", 0))
    message = Message(
        topic=str(data["topic"]),
        partition=int(data["partition"]),
        offset=int(data["offset"]),
        timestamp=None if data["timestamp"] is None else int(data["timestamp"]),
        key=_bytes(data["key"]),
        value=_bytes(data["value"]),
        headers=tuple((str(name), _bytes(value)) for name, value in data.get("headers", ())),
        attempt=attempts + 1,
    )
    dead = data.get("dead")
    return Delivery(
        message=message,
        handler=handler,
        number=int(data.get("number", 0)),
        attempts=attempts,
        failures=int(data.get("failures", 0)),
        first_failed_at=int(data.get("first_failed_at") or 0) or None,
        dead=None if dead is None else Dead(str(dead["reason"]), Failure.from_data(dead)),
        publish_tries=int(data.get("publish_tries", 0)),
    )


def _malformed(handler: str, why: str) -> str:
    return (
        f"A message for {handler} has a `{HEADER}` header that the bridge did not write: {why}. "
        "Only the bridge may send it; call the handler's .delay() without that header."
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value, validate=True)
