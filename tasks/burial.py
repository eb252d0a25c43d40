"""`tasks.bury`: writes the dead letter of a delivery that the worker's main process had to give up.

The main process must not block and never touches Kafka; it sends what it gives up to this task, through
the same broker, and acknowledges only then.
"""

import logging
import time
from dataclasses import replace
from typing import Any, Final

from celery import Task

from bridge.errors import MalformedDelivery, PublishFailed
from bridge.failure import Failure, cut
from bridge.message import HEADER, Dead, from_header
from bridge.publisher import Publisher
from tasks import metrics
from tasks.celery import app
from tasks.execution import publish_delay, send_again
from tasks.policy import EXPIRED, PERMANENT, POISON, UNKNOWN_HANDLER

logger = logging.getLogger(__name__)

#: The name of the task; the setting `burial_task` of the worker names it.
NAME: Final = "tasks.bury"


@app.task(name=NAME, bind=True, lazy=False, shared=False, acks_late=True, ignore_result=True, max_retries=None)
def bury(self: Task, letter: dict[str, Any]) -> None:  # type: ignore[type-arg]
    """Publish the dead letter of what the main process gave up; as long as Kafka cannot take it, try again.

    Parameters:
        letter: a `lossless.burial.Burial`.
    """
    name = str(letter.get("task"))
    try:
        delivery = from_header(name, (letter.get("headers") or {}).get(HEADER))
    except MalformedDelivery:
        logger.critical("A Celery message that carries no record was given up: %s", _shown(letter))
        return
    delivery = replace(delivery, attempts=delivery.attempts + int(letter.get("lost") or 0))
    dead = Dead(_reason(letter), _failure(letter))
    try:
        Publisher.of(self.app).dead_letter(delivery, dead)
    except PublishFailed as error:
        delay = publish_delay(self.request.retries)
        logger.error("%s is dead (%s), but not yet in Kafka; again in %d s: %s", delivery, dead.reason, delay, error)
        send_again(self, countdown=delay)
    metrics.dead_lettered(name, dead.reason)
    logger.error("%s is dead (%s): %s", delivery, dead.reason, dead.failure)


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


def _shown(letter: dict[str, Any]) -> str:
    return cut(repr({name: value for name, value in letter.items() if name != "error_traceback"}), 4_000)
