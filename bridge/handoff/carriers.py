"""Which Celery message carries a delivery now, and what that message says of it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from bridge.ledger import OWN
from bridge.records.attempts import Attempts
from bridge.records.header import Contents
from bridge.records.losses import losses
from bridge.records.message import Via
from bridge.records.more import Told

#: A delivery: partition, offset, handler.
Which = tuple[int, int, str]
#: Whose deliveries: handler, topic, partition.
Owner = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Carrier:
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


def carried(headers: Mapping[str, Any], topic: str, wanted: Collection[Which]) -> Iterator[tuple[Which, Told]]:
    """Those of the wanted deliveries that a message with these headers carries, with what it says of each."""
    contents = Contents.of(headers)
    if contents is None or contents.topic != topic:
        return
    handler = str(headers.get("task"))
    for offset, told in zip(contents.offsets, contents.tell(), strict=True):
        which = (contents.partition, offset, handler)
        if which in wanted:
            yield which, told


def offsets_in(headers: Mapping[str, Any]) -> list[tuple[Owner, Sequence[int]]]:
    """What a message with these headers carries; a `kafka` header that is none of ours carries nothing."""
    contents = Contents.of(headers)
    if contents is None:
        return []
    return [((str(headers.get("task")), contents.topic, contents.partition), contents.offsets)]


def own_in(headers: Mapping[str, Any]) -> list[tuple[Owner, Sequence[int]]]:
    """By which records of a retry or replay topic that came, as what those are in the ledger."""
    contents = Contents.of(headers)
    if contents is None or contents.via is None:
        return []
    offsets = sorted(told.via.offset for told in contents.tell() if told.via is not None)
    return [((OWN, contents.via.topic, contents.via.partition), offsets)]


def carrier(
    headers: Mapping[str, Any],
    told: Told,
    queue: str,
    where: Literal["queue", "aside", "taken", "waiting"],
    due: float | None,
) -> Carrier:
    """What is known of a delivery from the message that carries it."""
    first = told.first_failed_at / 1000 if told.first_failed_at else None
    task_id = str(headers.get("id") or "")
    # Those that its message has cost since it was sent are in its headers, and not among what travels with it yet.
    attempts = told.attempts.plus(lost=losses(headers))
    return Carrier(queue, where, due, attempts, told.number, told.error, first, told.dead, task_id, told.via)


@dataclass(frozen=True, slots=True)
class Waiting:
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

    def with_more(self, other: "Waiting") -> "Waiting":
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


def waiting_of(messages: Iterable[tuple[Mapping[str, Any], float | None]], more: bool) -> list[Waiting]:
    """Sum up by handler and kind what messages that wait until a time say of themselves (pure).

    Parameters:
        messages: the headers of each, and when it is due.
    """
    found: dict[tuple[str, Literal["failed", "unpublished"]], list[Carrier]] = {}
    for headers, due in messages:
        contents, handler = Contents.of(headers), str(headers.get("task"))
        for told in contents.tell() if contents else ():
            each = carrier(headers, told, "", "waiting", due)
            if each.dead or (each.error and not each.error.startswith(STOPS)):
                kind: Any = "unpublished" if each.dead else "failed"
                found.setdefault((handler, kind), []).append(each)
    made = []
    for (handler, kind), carriers in sorted(found.items()):
        since = min((each.first_failed for each in carriers if each.first_failed), default=None)
        last = max(carriers, key=lambda each: each.due or 0.0)
        made.append(Waiting(handler, kind, len(carriers), since, last.error or last.dead, more))
    return made
