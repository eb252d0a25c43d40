"""The Celery message that carries a delivery, and its data about the delivery (pure)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from bridge.formats.celery_header import HeaderContents, count_losses
from bridge.formats.delivery import Attempts, Via
from bridge.formats.delivery_row import DeliveryMetadata
from bridge.ledger import RETRY_RECORD

#: A delivery: partition, offset, handler.
DeliveryKey = tuple[int, int, str]
#: The owner of deliveries: handler, topic, partition.
PartitionHandler = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CarrierMessage:
    """The location of a message, and its data about one delivery.

    Attributes:
        where: in the queue, with a worker, or waiting until `due` (Unix time).
        attempts: the attempts so far, by outcome.
        number: how often it was parked or replayed.
        error: the last failure in words.
        first_failed: when it first failed (Unix time), or `None`.
        dead: why it is dead, while Kafka has not taken its dead letter; else empty.
        task_id: the id of the Celery task.
        via: the retry or replay record by which it came.
    """

    queue: str
    where: Literal["queue", "aside", "taken", "waiting"]
    due: float | None
    attempts: Attempts
    number: int
    error: str
    first_failed: float | None = None
    dead: str = ""
    task_id: str = ""
    via: Via | None = None


def find_carried_deliveries(
    headers: Mapping[str, Any], topic: str, wanted: Collection[DeliveryKey]
) -> Iterator[tuple[DeliveryKey, DeliveryMetadata]]:
    """Yield the wanted deliveries that a message with these headers carries, with its data about each."""
    contents = HeaderContents.from_headers(headers)
    if contents is None or contents.topic != topic:
        return
    handler = str(headers.get("task"))
    for offset, metadata in zip(contents.offsets, contents.metadata(), strict=True):
        key = (contents.partition, offset, handler)
        if key in wanted:
            yield key, metadata


def read_offsets(headers: Mapping[str, Any]) -> list[tuple[PartitionHandler, Sequence[int]]]:
    """Return the deliveries that a message with these headers carries; a foreign `kafka` header carries none."""
    contents = HeaderContents.from_headers(headers)
    if contents is None:
        return []
    return [((str(headers.get("task")), contents.topic, contents.partition), contents.offsets)]


def read_retry_offsets(headers: Mapping[str, Any]) -> list[tuple[PartitionHandler, Sequence[int]]]:
    """Return the retry or replay records by which the deliveries came, by the owner that these have in the ledger."""
    contents = HeaderContents.from_headers(headers)
    if contents is None or contents.via is None:
        return []
    offsets = sorted(told.via.offset for told in contents.metadata() if told.via is not None)
    return [((RETRY_RECORD, contents.via.topic, contents.via.partition), offsets)]


def read_carrier(
    headers: Mapping[str, Any],
    metadata: DeliveryMetadata,
    queue: str,
    where: Literal["queue", "aside", "taken", "waiting"],
    due: float | None,
) -> CarrierMessage:
    """Return what the message that carries a delivery tells about it."""
    first = metadata.first_failed_at / 1000 if metadata.first_failed_at else None
    task_id = str(headers.get("id") or "")
    # Processes lost since the message was sent are counted in its headers, not in the metadata.
    attempts = metadata.attempts.plus(lost=count_losses(headers))
    return CarrierMessage(
        queue, where, due, attempts, metadata.number, metadata.error, first, metadata.dead, task_id, metadata.via
    )


@dataclass(frozen=True, slots=True)
class WaitingFailures:
    """The deliveries of one handler that wait after a failure, in the messages that were read.

    Attributes:
        kind: `failed` or `unpublished` (Kafka refuses the dead letter).
        since: when the first of them first failed (Unix time), if known.
        error: the last one's.
        more: whether there are messages that were not read.
    """

    handler: str
    kind: Literal["failed", "unpublished"]
    count: int
    since: float | None
    error: str
    more: bool = False

    def with_more(self, other: "WaitingFailures") -> "WaitingFailures":
        """Return both together, with the error of the one that began to fail last."""
        known = [each.since for each in (self, other) if each.since is not None]
        later = max(self, other, key=lambda each: each.since or 0.0)
        return replace(
            self,
            count=self.count + other.count,
            since=min(known, default=None),
            error=later.error,
            more=self.more or other.more,
        )


#: The beginning of a failure by which a handler halts its topic: it is reported with the halt.
STOPS: Final = "tasks.errors.StopConsuming"
#: The beginning of a failure for which the schema registry was unavailable: it spends no attempt.
REGISTRY_DOWN: Final = "tasks.errors.RegistryDown: "


def sum_up_failures(messages: Iterable[tuple[Mapping[str, Any], float | None]], more: bool) -> list[WaitingFailures]:
    """Return the failures of waiting messages, summed up by handler and kind (pure).

    Parameters:
        messages: the headers of each, and when it is due.
    """
    by_kind: dict[tuple[str, Literal["failed", "unpublished"]], list[CarrierMessage]] = {}
    for headers, due in messages:
        contents, handler = HeaderContents.from_headers(headers), str(headers.get("task"))
        for metadata in contents.metadata() if contents else ():
            carrier = read_carrier(headers, metadata, "", "waiting", due)
            if carrier.dead or (carrier.error and not carrier.error.startswith(STOPS)):
                kind: Any = "unpublished" if carrier.dead else "failed"
                by_kind.setdefault((handler, kind), []).append(carrier)
    failures = []
    for (handler, kind), carriers in sorted(by_kind.items()):
        since = min((carrier.first_failed for carrier in carriers if carrier.first_failed), default=None)
        last = max(carriers, key=lambda carrier: carrier.due or 0.0)
        failures.append(WaitingFailures(handler, kind, len(carriers), since, last.error or last.dead, more))
    return failures
