"""Runs a delivery in the worker's child process, and settles it."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]
from billiard.exceptions import SoftTimeLimitExceeded
from celery import Task
from celery.exceptions import Reject, Retry, WorkerShutdown, WorkerTerminate

from bridge.errors import MalformedDelivery, PublishFailed
from bridge.failure import Failure
from bridge.message import HEADER, Dead, Delivery, from_header, to_header
from bridge.publisher import Publisher
from tasks import metrics
from tasks.errors import DeadLettered, Failed, RetryAsked
from tasks.policy import Again, Bury, Drop, Hold

if TYPE_CHECKING:
    from tasks.handler import HandlerTask

logger = logging.getLogger(__name__)

#: Seconds between tries to publish a dead letter that Kafka does not take: first, and at most.
PUBLISH_DELAY: Final = (2, 60)
#: More than any count of retries: how often a delivery runs is the policy's to say, not Celery's.
_NO_LIMIT: Final = 2**31


def execute(task: "HandlerTask", header: object) -> Any:
    """Run the delivery in a `kafka` header to its end, or to its next run.

    Returns:
        what the handler returned.

    Raises:
        Retry: it was sent again, to run later.
        DeadLettered: Kafka has its dead letter.
        Reject: neither could be done; the broker keeps the message.
    """
    delivery = _read(task, header)
    if delivery.dead is not None:
        return bury(task, delivery, delivery.dead)
    started = time.monotonic()
    try:
        result = task.call(delivery.message)
        if (asked := _remembered(task)) is not None:
            raise asked
    except (WorkerShutdown, WorkerTerminate):
        raise
    except BaseException as error:
        # Also SystemExit, GeneratorExit and MemoryError: Celery would acknowledge, or stop the worker.
        _leave_if_told_to(error)
        metrics.ran(task.name, "failed", time.monotonic() - started)
        caught = error
        return _settling(task, delivery, lambda: _act(task, delivery, caught))
    metrics.ran(task.name, "done", time.monotonic() - started)
    return result


def bury(task: "HandlerTask", delivery: Delivery, dead: Dead) -> Any:
    """Publish a dead letter and end the task; as long as Kafka cannot take it, send it again to do only that.

    Raises:
        DeadLettered: Kafka has it.
        Retry: Kafka has not; it is tried again later.
    """
    return _settling(task, delivery, lambda: _bury(task, delivery, dead))


def send_again(task: Task, **options: Any) -> NoReturn:  # type: ignore[type-arg]
    """Celery's own retry, past the one that handlers call, without its limit and without its loss.

    Raises:
        Retry: the message was sent again.
        Reject: it could not be; the broker keeps the one in hand.
    """
    try:
        Task.retry(task, max_retries=_NO_LIMIT, **options)
    except Reject as error:
        # Celery gives up a message whose retry it cannot publish (celery/app/task.py:958-961).
        raise Reject(vars(error)["reason"], requeue=True) from None
    raise AssertionError("Task.retry always raises")


def publish_delay(tries: int) -> int:
    """Seconds before the next try to publish a dead letter, after that many that failed before."""
    first, most = PUBLISH_DELAY
    return int(min(most, first * 2 ** min(tries, 10)))


def failures_of(task: "HandlerTask") -> int:
    """How many runs of the delivery in hand have spent a retry."""
    headers: dict[str, Any] = task.request.headers or {}
    return int(headers[HEADER].get("failures", 0))


def remember(task: "HandlerTask", asked: RetryAsked) -> None:
    """Keep what `self.retry(throw=False)` asked for until the handler returns."""
    vars(task.request)["retry_asked"] = asked


def _remembered(task: "HandlerTask") -> RetryAsked | None:
    asked: RetryAsked | None = getattr(task.request, "retry_asked", None)
    return asked


def _read(task: "HandlerTask", header: object) -> Delivery:
    try:
        return from_header(task.name, header)
    except MalformedDelivery as error:
        logger.error("%s", error)
        raise


def _settling(task: "HandlerTask", delivery: Delivery, settle: Callable[[], Any]) -> Any:
    """Whatever goes wrong while a delivery is settled, its message stays in the broker."""
    try:
        try:
            return settle()
        except SoftTimeLimitExceeded:
            # The limit was for the handler; it comes once, so that settling can be begun again.
            return settle()
    except (Retry, DeadLettered):
        raise
    except BaseException as error:
        _leave_if_told_to(error)
        logger.exception("%s could not be settled and stays in the queue: %s", delivery, type(error).__name__)
        raise Reject(f"{delivery} could not be settled: {type(error).__name__}", requeue=True) from None


def _leave_if_told_to(error: BaseException) -> None:
    """End the process if that is why the handler ended: a hard time limit, a revoke, a shutdown.

    billiard ends a child by SIGTERM, which raises SystemExit in whatever it runs. What becomes of the delivery is
    then the main process's to say (lossless/request.py); settled here as well, it would run twice.
    """
    if terminate_handler_fired():
        raise error if isinstance(error, SystemExit) else SystemExit(os.EX_SOFTWARE)


def _act(task: "HandlerTask", delivery: Delivery, error: BaseException) -> Any:
    now = time.time()
    age = 0.0 if delivery.first_failed_at is None else now - delivery.first_failed_at / 1000
    decision = task.policy.decide(error, delivery.failures, age)
    failure = Failure.of(error.error if isinstance(error, RetryAsked) and error.error else error, now)
    match decision:
        case Drop():
            return None
        case Again(delay, spent):
            again = delivery.failed(failure, spent=spent)
            metrics.retried(task.name, "failed" if spent else "postponed")
            logger.warning("%s failed (run %d), again in %.3g s: %s", delivery, again.attempts, delay, failure)
            _again(task, again, delay, failure)
        case Hold(delay):
            metrics.retried(task.name, "held")
            logger.critical(
                "%s asks to stop the topic; the message is kept, again in %g s: %s", delivery, delay, failure
            )
            _again(task, delivery.failed(failure, spent=False), delay, failure)
        case Bury(reason):
            _bury(task, delivery.failed(failure, spent=True), Dead(reason, failure))


def _again(task: "HandlerTask", delivery: Delivery, delay: float, failure: Failure) -> NoReturn:
    """Send the message again, then acknowledge this one; a crash between the two repeats the delivery."""
    sent: dict[str, Any] = task.request.headers or {}
    headers = {name: value for name, value in sent.items() if name != "redelivered"}
    headers[HEADER] = to_header(delivery)
    send_again(
        task,
        countdown=delay,
        exc=Failed(str(failure)),
        headers=headers,
        argsrepr=vars(task.request).get("argsrepr"),
        kwargsrepr="{}",
    )


def _bury(task: "HandlerTask", delivery: Delivery, dead: Dead) -> NoReturn:
    try:
        Publisher.of(task.app).dead_letter(delivery, dead)
    except PublishFailed as error:
        _bury_later(task, delivery, dead, error)
    metrics.dead_lettered(task.name, dead.reason)
    logger.error("%s is dead (%s) after %d run(s): %s", delivery, dead.reason, delivery.attempts, dead.failure)
    raise DeadLettered(f"{dead.reason}: {dead.failure}")


def _bury_later(task: "HandlerTask", delivery: Delivery, dead: Dead, error: PublishFailed) -> NoReturn:
    delay = publish_delay(delivery.publish_tries)
    metrics.retried(task.name, "dead_letter_unpublished")
    logger.error(
        "%s is dead (%s), but Kafka did not take its dead letter; again in %d s: %s",
        delivery,
        dead.reason,
        delay,
        error,
    )
    again = replace(delivery, dead=dead, publish_tries=delivery.publish_tries + 1)
    _again(task, again, delay, dead.failure)
