"""Which Celery message carries a delivery now, and what that message says of it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bridge.message import HEADER

#: A delivery: partition, offset, handler.
Which = tuple[int, int, str]
#: Whose deliveries: handler, topic, partition.
Owner = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Carrier:
    """Where a message lies, and what it says of one delivery.

    Attributes:
        where: in the queue, with a worker, or waiting until `due` (Unix time).
        failed, postponed: runs that spent a retry and that did not; `lost`: processes and workers that died with it.
        number: how often it was parked or replayed.
        error: the last failure in words.
    """

    queue: str
    where: Literal["queue", "taken", "waiting"]
    due: float | None
    failed: int
    postponed: int
    lost: int
    number: int
    error: str


def carried(
    headers: Mapping[str, Any], topic: str, wanted: Collection[Which]
) -> Iterator[tuple[Which, Mapping[str, Any]]]:
    """Those of the wanted deliveries that a message with these headers carries, with what it says of each."""
    header = headers.get(HEADER)
    if not isinstance(header, Mapping) or header.get("topic") != topic:
        return
    for which, more in _rows(headers, header):
        if which in wanted:
            yield which, more


def offsets_in(headers: Mapping[str, Any]) -> list[tuple[Owner, list[int]]]:
    """What a message with these headers carries; a `kafka` header that is none of ours carries nothing."""
    header = headers.get(HEADER)
    if not isinstance(header, Mapping):
        return []
    by_partition: dict[int, list[int]] = {}
    for (partition, offset, _), _ in _rows(headers, header):
        by_partition.setdefault(partition, []).append(offset)
    handler, topic = str(headers.get("task")), str(header.get("topic"))
    return [((handler, topic, partition), offsets) for partition, offsets in by_partition.items()]


def _rows(headers: Mapping[str, Any], header: Mapping[str, Any]) -> list[tuple[Which, Mapping[str, Any]]]:
    try:
        partition, handler = int(header["partition"]), str(headers.get("task"))
        return [
            ((partition, int(row[0]), handler), row[5] if len(row) > 5 else {}) for row in header.get("messages") or ()
        ]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        # Another's header of that name.
        return []


def carrier(
    headers: Mapping[str, Any],
    more: Mapping[str, Any],
    queue: str,
    where: Literal["queue", "taken", "waiting"],
    due: float | None,
) -> Carrier:
    """What is known of a delivery from the message that carries it."""
    runs, failed = int(more.get("attempts", 0)), int(more.get("failures", 0))
    lost = sum(int(headers.get(name) or 0) for name in ("lost", "restored"))
    number, error = int(more.get("number", 0)), str(more.get("error", ""))
    return Carrier(queue, where, due, failed, runs - failed, lost, number, error)
