"""The loss of a worker's process: which delivery of its message is charged with it, and which run alone from then on
(pure).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from bridge.errors import MalformedDelivery
from bridge.formats.attempt_history import LOST, AttemptNote, add_attempt
from bridge.formats.celery_header import HEADER, from_header, read_counter, to_header
from bridge.formats.delivery import ERROR_LENGTH, Batch, Delivery
from bridge.formats.failure import cut
from lossless.worker.process_death import LOSS_HISTORY, TIME_LIMIT, read_loss_history

#: Headers that count workers which died with a message; a run that ends clears them.
_WORKERS: Final = ("restored", "prefetched")
#: The header that counts lost processes, and the beginning of the error of a delivery charged with one.
LOST_HEADER: Final = "lost"
_LOST_WITH: Final = "process lost: "


class TaskNotes(NamedTuple):
    """The notes of a process on its task.

    Attributes:
        done: the offsets whose handler had succeeded.
        running: the offset whose handler was running; `None`: unknown.
        sent: the offsets that were sent on in messages of their own.
        overran: whether the process was ended because a handler overran its hard time limit.
    """

    done: frozenset[int] = frozenset()
    running: int | None = None
    sent: frozenset[int] = frozenset()
    overran: bool = False


def headers_after_loss(
    handler: str, headers: Mapping[str, Any], notes: TaskNotes, cause: str, at: float
) -> dict[str, Any]:
    """Return the headers with which a message is redelivered after its process was lost.

    Parameters:
        cause: why the process was lost.
        at: when, in seconds since the epoch.
    """
    lost = read_counter(headers, "lost") + 1
    try:
        batch = from_header(handler, headers.get(HEADER))
    except MalformedDelivery:
        return {"lost": lost}
    charged = _charged(batch, notes)
    deliveries = []
    # A message without deliveries could not be read.
    left = [each for each in batch.deliveries if each.message.offset not in notes.sent] or batch.deliveries
    for delivery in left:
        if delivery.message.offset in notes.done:
            deliveries.append(replace(delivery, ended="done"))
        elif delivery is charged:
            deliveries.append(_lost_with(delivery, cause, at))
        else:
            deliveries.append(delivery)
    if charged is not None and (len(batch.deliveries) > 1 or "lost" not in headers):
        # The delivery's own count: the message may count losses of others, or none from before a retry topic.
        lost = charged.attempts.lost + 1
    return {"lost": lost, HEADER: to_header(batch.holding(deliveries))}


def count_worker_losses(todo: Sequence[Delivery], headers: Mapping[str, Any]) -> list[Delivery]:
    """Return the deliveries of a message; a single one is charged with the workers that died while it ran."""
    restored = read_counter(headers, "restored")
    if len(todo) != 1 or not restored:
        return list(todo)
    delivery = todo[0].lost(restored)
    message = replace(delivery.message, attempt=delivery.runs + 1, attempts=delivery.attempts)
    return [replace(delivery, message=message)]


def clear_loss_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loss headers of a message that is sent again after a run that ended.

    The count of lost processes stays. The count of dead workers is cleared: a message that kills workers does not get
    so far. The message counts as redelivered: its dead letter may be written.
    """
    if not any(headers.get(name) for name in ("lost", *_WORKERS)):
        return {}
    return {"lost": read_counter(headers, "lost"), "redelivered": True, **_loss_history(headers)}


def reset_loss_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same headers as updates for a message that is redelivered with its old headers."""
    known = clear_loss_headers(headers)
    return {"lost": known["lost"], **dict.fromkeys(_WORKERS, 0)} if known else {}


def headers_of_return(batch: Batch, headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header updates of a message that is redelivered with this batch, after a run that ended."""
    return {HEADER: to_header(batch), **reset_loss_headers(headers)}


def split_after_loss(
    todo: Iterable[Delivery], headers: Mapping[str, Any]
) -> list[tuple[list[Delivery], dict[str, Any]]]:
    """Return the messages into which one is split after a lost process: deliveries and headers."""
    todo = list(todo)
    guilty = [delivery for delivery in todo if delivery.attempts.lost]
    if not guilty:
        return [([delivery], {"redelivered": True}) for delivery in todo]
    others = [delivery for delivery in todo if not delivery.attempts.lost]
    alone = [([delivery], {"lost": delivery.attempts.lost, **_loss_history(headers)}) for delivery in guilty]
    # Also of the others an earlier run may have written a dead letter, or parked one, without its mark.
    return [(others, {"redelivered": True}), *alone] if others else alone


def find_poison(todo: Sequence[Delivery]) -> list[Delivery]:
    """Return the delivery that killed its message's processes: the one that was running most often at a loss.

    If that was never known, it is the first: they run in order then, and each is marked at once.
    """
    return [max(todo, key=lambda delivery: delivery.attempts.lost)] if todo else []


def count_unsaid_losses(letter: Mapping[str, Any]) -> int:
    """Return the lost processes and workers of a burial (`lossless.worker`) that its deliveries do not count."""
    headers = letter.get("headers") or {}
    # An older version writes no history: processes are counted in the message alone.
    lost = 0 if read_loss_history(headers) else read_counter(letter, "lost")
    return lost + read_counter(letter, "restored")


def overran_limit(error: str) -> bool:
    """Return whether an error is that a run overran its hard time limit."""
    return error.removeprefix(_LOST_WITH).startswith(TIME_LIMIT)


def clear_losses(delivery: Delivery) -> Delivery:
    """Return a delivery with its lost processes counted as postponed: they overran through no fault of its own."""
    attempts = delivery.attempts.plus(lost=-delivery.attempts.lost, postponed=delivery.attempts.lost)
    return replace(delivery, message=replace(delivery.message, attempts=attempts), attempts=attempts)


def _charged(batch: Batch, notes: TaskNotes) -> Delivery | None:
    gone = notes.done | notes.sent
    left = [delivery for delivery in batch.deliveries if not delivery.ended and delivery.message.offset not in gone]
    if len(batch.deliveries) == 1:
        return left[0] if left else None
    return next((delivery for delivery in left if delivery.message.offset == notes.running), None)


def _lost_with(delivery: Delivery, cause: str, at: float) -> Delivery:
    error = cut(f"{_LOST_WITH}{cause}", ERROR_LENGTH)
    first = delivery.first_failed_at or int(at * 1000)
    note = AttemptNote(delivery.runs + 1, int(at * 1000), None, cause, end=LOST)
    return replace(delivery.lost(1), first_failed_at=first, error=error, history=add_attempt(delivery.history, note))


def _loss_history(headers: Mapping[str, Any]) -> dict[str, Any]:
    history = read_loss_history(headers)
    return {LOSS_HISTORY: history} if history else {}
