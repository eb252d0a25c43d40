"""The loss of a worker's process: which delivery of its message is charged with it, which run alone from then on, and
which go on as before (pure).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from bridge.errors import MalformedDelivery
from bridge.formats.celery_header import HEADER, from_header, read_counter, to_header
from bridge.formats.delivery import ERROR_LENGTH, Batch, Delivery
from bridge.formats.failure import cut
from lossless.worker.process_death import LOSS_HISTORY, TIME_LIMIT, read_loss_history

#: Headers that count workers which died with a message; a run that comes to its end clears it of them.
_WORKERS: Final = ("restored", "prefetched")
#: The header that counts processes; and how it is said of a delivery that one was lost with it.
LOST_HEADER: Final = "lost"
_LOST_WITH: Final = "process lost: "


class TaskNotes(NamedTuple):
    """What a process noted on its task.

    Attributes:
        done: the offsets of which the handler had ended well.
        running: the offset that it was at; `None` where that is not known.
    """

    done: frozenset[int] = frozenset()
    running: int | None = None


def headers_after_loss(
    handler: str, headers: Mapping[str, Any], notes: TaskNotes, cause: str, at: float
) -> dict[str, Any]:
    """The headers with which a message comes back whose process was lost.

    Parameters:
        cause: what took the process.
        at: when, in seconds since the epoch.
    """
    lost = read_counter(headers, "lost") + 1
    try:
        batch = from_header(handler, headers.get(HEADER))
    except MalformedDelivery:
        return {"lost": lost}
    charged = _charged(batch, notes)
    deliveries = []
    for each in batch.deliveries:
        if each.message.offset in notes.done:
            deliveries.append(replace(each, ended="done"))
        elif each is charged:
            deliveries.append(_lost_with(each, cause, at))
        else:
            deliveries.append(each)
    if charged is not None and (len(batch.deliveries) > 1 or "lost" not in headers):
        # Its own count: of those before one was another's, or they came by Kafka (a retry topic).
        lost = charged.attempts.lost + 1
    return {"lost": lost, HEADER: to_header(batch.holding(deliveries))}


def count_worker_losses(todo: Sequence[Delivery], headers: Mapping[str, Any]) -> list[Delivery]:
    """The deliveries of a message, with the workers that died after its only one had begun."""
    restored = read_counter(headers, "restored")
    if len(todo) != 1 or not restored:
        return list(todo)
    found = todo[0].lost(restored)
    message = replace(found.message, attempt=found.runs + 1, attempts=found.attempts)
    return [replace(found, message=message)]


def clear_loss_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """What a message says of its past that is sent again after a run which came to its end.

    Processes go on being counted. Of workers that died with it, it is acquitted: what kills does not get so far. It was
    in a worker's hands before: its dead letter may be written.
    """
    if not any(headers.get(name) for name in ("lost", *_WORKERS)):
        return {}
    return {"lost": read_counter(headers, "lost"), "redelivered": True, **_loss_history(headers)}


def reset_loss_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The same, to go over the headers of a message that comes back as it is."""
    known = clear_loss_headers(headers)
    return {"lost": known["lost"], **dict.fromkeys(_WORKERS, 0)} if known else {}


def headers_of_return(batch: Batch, headers: Mapping[str, Any]) -> dict[str, Any]:
    """What goes over the headers of a message that comes back with this batch, after a run that came to its end."""
    return {HEADER: to_header(batch), **reset_loss_headers(headers)}


def split_after_loss(
    todo: Iterable[Delivery], headers: Mapping[str, Any]
) -> list[tuple[list[Delivery], dict[str, Any]]]:
    """The messages into which one is broken up with which a process was lost: deliveries, and headers."""
    todo = list(todo)
    guilty = [each for each in todo if each.attempts.lost]
    if not guilty:
        return [([each], {"redelivered": True}) for each in todo]
    others = [each for each in todo if not each.attempts.lost]
    alone = [([each], {"lost": each.attempts.lost, **_loss_history(headers)}) for each in guilty]
    return [(others, {}), *alone] if others else alone


def find_poison(todo: Sequence[Delivery]) -> list[Delivery]:
    """The one of a message that killed its processes: it was running most often when one was lost.

    Where that was never known: the first. They run in their order then, and each is marked at once.
    """
    return [max(todo, key=lambda each: each.attempts.lost)] if todo else []


def count_unsaid_losses(letter: Mapping[str, Any]) -> int:
    """Lost processes and workers of a letter (a `lossless.worker.message_burial.Burial`) that its deliveries do not
    say.
    """
    headers = letter.get("headers") or {}
    # Of a version that said no history, processes are counted in the message alone.
    lost = 0 if read_loss_history(headers) else read_counter(letter, "lost")
    return lost + read_counter(letter, "restored")


def overran_limit(error: str) -> bool:
    """Whether a delivery's last failure, or what it is dead of, is that its run went on until its hard time limit."""
    return error.removeprefix(_LOST_WITH).startswith(TIME_LIMIT)


def clear_losses(delivery: Delivery) -> Delivery:
    """A delivery whose processes ran into their time limit for no fault of its own."""
    attempts = delivery.attempts.plus(lost=-delivery.attempts.lost, postponed=delivery.attempts.lost)
    return replace(delivery, message=replace(delivery.message, attempts=attempts), attempts=attempts)


def _charged(batch: Batch, notes: TaskNotes) -> Delivery | None:
    left = [each for each in batch.deliveries if not each.ended and each.message.offset not in notes.done]
    if len(batch.deliveries) == 1:
        return left[0] if left else None
    return next((each for each in left if each.message.offset == notes.running), None)


def _lost_with(delivery: Delivery, cause: str, at: float) -> Delivery:
    error = cut(f"{_LOST_WITH}{cause}", ERROR_LENGTH)
    first = delivery.first_failed_at or int(at * 1000)
    return replace(delivery.lost(1), first_failed_at=first, error=error)


def _loss_history(headers: Mapping[str, Any]) -> dict[str, Any]:
    found = read_loss_history(headers)
    return {LOSS_HISTORY: found} if found else {}
