"""The Celery message that carries a delivery now, and what it says of it (pure)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from bridge.formats.celery_header import HeaderContents, count_losses
from bridge.formats.delivery import Attempts, Via
from bridge.formats.delivery_row import DeliveryMetadata
from bridge.ledger import RETRY_RECORD

#: A delivery: partition, offset, handler.
DeliveryKey = tuple[int, int, str]
#: Whose deliveries: handler, topic, partition.
PartitionHandler = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CarrierMessage:
    """Where a message lies, and what it says of one delivery.

    Attributes:
        where: in the queue, with a worker, or waiting until `due` (Unix time).
        attempts: what became of its attempts so far.
        number: how often it was parked or replayed.
        error: the last failure in words.
        first_failed: when it failed first (Unix time), or None.
        dead: why it is dead, where Kafka has not taken its dead letter; else empty.
        task_id: of the Celery task.
        via: the record of a retry or replay topic by which it came.
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
    """Those of the wanted deliveries that a message with these headers carries, with what it says of each."""
    contents = HeaderContents.of(headers)
    if contents is None or contents.topic != topic:
        return
    handler = str(headers.get("task"))
    for offset, told in zip(contents.offsets, contents.tell(), strict=True):
        which = (contents.partition, offset, handler)
        if which in wanted:
            yield which, told


def read_offsets(headers: Mapping[str, Any]) -> list[tuple[PartitionHandler, Sequence[int]]]:
    """What a message with these headers carries; a `kafka` header that is none of ours carries nothing."""
    contents = HeaderContents.of(headers)
    if contents is None:
        return []
    return [((str(headers.get("task")), contents.topic, contents.partition), contents.offsets)]


def read_retry_offsets(headers: Mapping[str, Any]) -> list[tuple[PartitionHandler, Sequence[int]]]:
    """By which records of a retry or replay topic that came, as what those are in the ledger."""
    contents = HeaderContents.of(headers)
    if contents is None or contents.via is None:
        return []
    offsets = sorted(told.via.offset for told in contents.tell() if told.via is not None)
    return [((RETRY_RECORD, contents.via.topic, contents.via.partition), offsets)]


def read_carrier(
    headers: Mapping[str, Any],
    told: DeliveryMetadata,
    queue: str,
    where: Literal["queue", "aside", "taken", "waiting"],
    due: float | None,
) -> CarrierMessage:
    """What is known of a delivery from the message that carries it."""
    first = told.first_failed_at / 1000 if told.first_failed_at else None
    task_id = str(headers.get("id") or "")
    # Those that its message has cost since it was sent are in its headers, and not among what travels with it yet.
    attempts = told.attempts.plus(lost=count_losses(headers))
    return CarrierMessage(queue, where, due, attempts, told.number, told.error, first, told.dead, task_id, told.via)


@dataclass(frozen=True, slots=True)
class WaitingFailures:
    """Deliveries of one handler that wait after a failure, of those messages of its queue that were looked at.

    Attributes:
        kind: `failed` or `unpublished` (Kafka refuses the dead letter).
        since: when the first of them failed first (Unix time), where that is known.
        error: the last one's, of those looked at.
        more: whether there are messages that were not looked at.
    """

    handler: str
    kind: Literal["failed", "unpublished"]
    count: int
    since: float | None
    error: str
    more: bool = False

    def with_more(self, other: "WaitingFailures") -> "WaitingFailures":
        """The two together; the error is of that which began to fail last."""
        known = [each.since for each in (self, other) if each.since is not None]
        later = max(self, other, key=lambda each: each.since or 0.0)
        return replace(
            self,
            count=self.count + other.count,
            since=min(known, default=None),
            error=later.error,
            more=self.more or other.more,
        )


#: How the words of a failure begin where a handler asks to stop its topic: that is told with the halt.
STOPS: Final = "tasks.errors.StopConsuming"


def sum_up_failures(messages: Iterable[tuple[Mapping[str, Any], float | None]], more: bool) -> list[WaitingFailures]:
    """Sum up by handler and kind what messages that wait until a time say of themselves (pure).

    Parameters:
        messages: the headers of each, and when it is due.
    """
    found: dict[tuple[str, Literal["failed", "unpublished"]], list[CarrierMessage]] = {}
    for headers, due in messages:
        contents, handler = HeaderContents.of(headers), str(headers.get("task"))
        for told in contents.tell() if contents else ():
            each = read_carrier(headers, told, "", "waiting", due)
            if each.dead or (each.error and not each.error.startswith(STOPS)):
                kind: Any = "unpublished" if each.dead else "failed"
                found.setdefault((handler, kind), []).append(each)
    made = []
    for (handler, kind), carriers in sorted(found.items()):
        since = min((each.first_failed for each in carriers if each.first_failed), default=None)
        last = max(carriers, key=lambda each: each.due or 0.0)
        made.append(WaitingFailures(handler, kind, len(carriers), since, last.error or last.dead, more))
    return made
