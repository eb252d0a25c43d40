"""`tasks.bury`: writes the dead letter of a delivery that the worker's main process had to give up.

The main process must not block and never touches Kafka; it sends what it gives up to this task, through
the same broker, and acknowledges only then. What the child itself finds dead does not come here. How a dead letter is
written, in both cases, stands in tasks/settling.py (`Settling.dead`) and bridge/topics/publisher.py.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from celery import Celery, Task

from bridge.errors import LedgerUnavailable, MalformedDelivery, PublishFailed
from bridge.records.failure import Failure, cut
from bridge.records.header import HEADER, from_header
from bridge.records.message import Batch, Dead, Delivery
from bridge.settings.handlers_version import handlers_version
from tasks import observing
from tasks.aftermath import cleared_of_losses, overran, poison_of, uncounted
from tasks.attempt_outcomes import attempt_outcomes
from tasks.book import Book
from tasks.breaking import PAUSE, Breaking
from tasks.defaults import DeliveryTask
from tasks.metrics import process_lost, retried
from tasks.policy import EXPIRED, PERMANENT, POISON, UNKNOWN_HANDLER
from tasks.resending import publish_delay, retry, send_on
from tasks.running import MessageTask
from tasks.settling import Settling

logger = observing.log(__name__)

#: The name of the task; the setting `burial_task` of the worker names it.
NAME: Final = "tasks.bury"


def bury(self: Task, letter: dict[str, Any]) -> None:  # type: ignore[type-arg]
    """Publish the dead letter of what the main process gave up; as long as Kafka cannot take it, try again.

    Parameters:
        letter: a `lossless.worker.burial.Burial`.
    """
    try:
        batch = from_header(str(letter.get("task")), (letter.get("headers") or {}).get(HEADER))
    except MalformedDelivery:
        logger.critical("A Celery message that carries no record was given up: %s", _shown(letter))
        return
    dead = Dead(_reason(letter), _failure(letter), _version(self.app, batch.handler))
    try:
        book = Book.of(self.app, batch)
        settling = Settling.of(self, batch, book)
        for delivery in batch.deliveries:
            if delivery.ended:
                settling.ended_before(delivery)
        settled = book.settled(sorted(batch.offsets))
        left = [delivery for delivery in batch.deliveries if not delivery.ended]
        todo = [delivery for delivery in left if delivery.message.offset not in settled]
        guilty = poison_of(todo) if dead.reason == POISON else todo
        if dead.reason == POISON and todo:
            process_lost(batch.handler, batch.group)
            attempt_outcomes.process_lost(book.ledger, batch.topic, batch.handler)
        if guilty and _is_spared(self.app, batch, guilty[0], dead):
            for part in _spared(batch, todo, guilty[0]):
                send_on(self.app, batch.holding(part), PAUSE, {"routing_key": letter.get("queue")})
            todo = guilty = []
        for delivery in guilty:
            run = delivery.lost(uncounted(letter))
            # What was dead before, and waited for Kafka to take it, died of that.
            write_dead_letter(settling, run, delivery.dead or dead, batch.group, again=self.request.retries > 0)
        if rest := [delivery for delivery in todo if delivery not in guilty]:
            send_on(self.app, batch.holding(rest), 0, {"routing_key": letter.get("queue")})
        settling.note_carrier(letter.get("id"))
    except (LedgerUnavailable, PublishFailed) as error:
        # The dead letter may be written, without its mark: the next run looks.
        headers = {**(self.request.headers or {}), "redelivered": True}
        delay = publish_delay(self.request.retries)
        logger.error(
            "%s is dead (%s), but that could not be written; again in %d s: %s",
            str(batch),
            dead.reason,
            delay,
            str(error),
        )
        retry(self, countdown=delay, headers=headers)


def write_dead_letter(settling: Settling, delivery: Delivery, dead: Dead, group: str, *, again: bool) -> None:
    """Write a dead letter; note for `bridge status` that Kafka refuses it, and that it takes it after all.

    Parameters:
        again: Kafka may have refused it before.

    Raises:
        LedgerUnavailable: it is written, and the ledger did not take the mark.
        PublishFailed: Kafka did not take it.
    """
    try:
        settling.dead(delivery, dead)
    except PublishFailed as error:
        retried(delivery.handler, group, "dead_letter_unpublished")
        attempt_outcomes.refused(settling.ledger, delivery.handler, delivery.identity, str(error)[:300])
        raise
    if again or delivery.publish_tries:
        attempt_outcomes.written(settling.ledger, delivery.handler, delivery.identity)


def _is_spared(app: Celery, batch: Batch, delivery: Delivery, dead: Dead) -> bool:
    """Whether it ran into its time limit because what its handler needs hangs."""
    if dead.reason != POISON or not overran(dead.failure.error_message):
        return False
    task: Any = app.tasks.get(batch.handler)
    return isinstance(task, MessageTask) and Breaking.of(task, batch.group).spares(delivery)


def _spared(batch: Batch, todo: list[Delivery], delivery: Delivery) -> list[list[Delivery]]:
    """The messages in which they go on: it runs alone, but what is ordered stays together."""
    spared = cleared_of_losses(delivery)
    if batch.order is not None:
        return [[spared if each is delivery else each for each in todo]]
    return [part for part in ([each for each in todo if each is not delivery], [spared]) if part]


def register(app: Celery) -> None:
    """Make it a task of an app whose worker buries through it."""
    app.task(name=NAME, base=DeliveryTask, bind=True, lazy=False, shared=False, max_retries=None)(bury)


def carries_record(headers: object) -> bool:
    """Whether a Celery message with these headers is a delivery, which can be dead-lettered."""
    if not isinstance(headers, Mapping):
        return False
    try:
        from_header(str(headers.get("task")), headers.get(HEADER))
    except MalformedDelivery:
        return False
    return True


#: What the worker's main process calls the ends that it finds, in the words of our headers.
_REASONS: Final = {"unknown_task": UNKNOWN_HANDLER, "poison": POISON, "expired": EXPIRED}


def _reason(letter: dict[str, Any]) -> str:
    return _REASONS.get(str(letter.get("reason")), PERMANENT)


def _failure(letter: dict[str, Any]) -> Failure:
    return Failure(
        error_class=str(letter.get("error_class") or ""),
        error_message=str(letter.get("error_message") or ""),
        error_traceback=str(letter.get("error_traceback") or ""),
        failed_at=int(letter.get("failed_at") or time.time() * 1000),
    )


def _version(app: Celery, handler: str) -> str:
    """Of the handler's code in this worker; of one that it does not know, what the environment says."""
    task: Any = app.tasks.get(handler)
    return task.version if isinstance(task, MessageTask) else handlers_version("", os.environ)


def _shown(letter: dict[str, Any]) -> str:
    return cut(repr({name: value for name, value in letter.items() if name != "error_traceback"}), 4_000)
