"""Runs a batch of deliveries (often of one) in the worker's child process, and settles each."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]
from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Reject, Retry, WorkerShutdown, WorkerTerminate

from bridge.errors import LedgerUnavailable, MalformedDelivery, PublishFailed
from bridge.failure import Failure
from bridge.ledger import Fate
from bridge.message import Batch, Dead, Delivery, from_header
from bridge.publisher import Publisher
from bridge.settled import AlreadySettled
from tasks import metrics, telling
from tasks.book import Book
from tasks.errors import DeadLettered, RetryAsked
from tasks.logs import about
from tasks.policy import Again, Bury, Drop, Hold
from tasks.resending import publish_delay, retry_batch, send_on

if TYPE_CHECKING:
    from tasks.handler import HandlerTask

logger = logging.getLogger(__name__)

#: Seconds before a delivery is tried again while the ledger does not say whether it is settled.
LEDGER_DELAY: Final = 5.0


def execute(task: "HandlerTask", header: object) -> Any:
    """Run the batch in a `kafka` header to its end, or to its next run.

    Returns:
        what the handler returned; for several deliveries, how many ended how.

    Raises:
        Retry: the only delivery was sent again, to run later.
        DeadLettered: Kafka has the dead letters of all that died, and all else is settled or sent on.
        Reject: it could not be settled; the broker keeps the message.
    """
    try:
        batch = from_header(task.name, header)
    except MalformedDelivery as error:
        logger.error("%s", str(error))
        raise
    try:
        return _settling(batch, lambda: Execution(task, batch).run())
    finally:
        about(None)


def failures_of(task: "HandlerTask") -> int:
    """How many runs of the delivery that runs now have spent a retry."""
    return int(vars(task.request).get("failures", 0))


def remember(task: "HandlerTask", asked: RetryAsked) -> None:
    """Keep what `self.retry(throw=False)` asked for until the handler returns."""
    vars(task.request)["retry_asked"] = asked


def _settling(batch: Batch, run: Callable[[], Any]) -> Any:
    """Whatever goes wrong while a batch is settled, its message stays in the broker."""
    try:
        return run()
    except (Retry, Reject, DeadLettered, WorkerShutdown, WorkerTerminate):
        raise
    except BaseException as error:
        _leave_if_told_to(error)
        logger.exception("%s could not be settled and stays in the queue: %s", str(batch), type(error).__name__)
        raise Reject(f"{batch} could not be settled: {type(error).__name__}", requeue=True) from None


def _leave_if_told_to(error: BaseException) -> None:
    """End the process if that is why the handler ended: a hard time limit, a revoke, a shutdown.

    billiard ends a child by SIGTERM, which raises SystemExit in whatever it runs. What becomes of the delivery is
    then the main process's to say (lossless/request.py); settled here as well, it would run twice.
    """
    if terminate_handler_fired():
        raise error if isinstance(error, SystemExit) else SystemExit(os.EX_SOFTWARE)


class Execution:
    """One run of a batch: its deliveries one after another, each with a fate of its own."""

    def __init__(self, task: "HandlerTask", batch: Batch) -> None:
        self._task, self._batch = task, batch
        self._alone = len(batch.deliveries) == 1
        self._book = Book.of(task.app, batch)
        sent = task.request.headers or {}
        #: A process or a whole worker died with it: it runs apart from others, and is marked at once.
        self._suspect = bool(sent.get("lost") or sent.get("restored"))
        self._comes_again = bool(self._suspect or sent.get("redelivered"))
        self._later: dict[float, list[Delivery]] = {}
        self._blocked: dict[bytes | None, float] = {}
        self._counts: dict[str, int] = {}
        self._result: Any = None
        self._dead: Dead | None = None
        self._limited = False

    def run(self) -> Any:
        """Run what is not settled; then send on what must run later; then mark, and return."""
        todo = self._unsettled()
        if self._suspect and len(todo) > 1 and self._batch.order is None:
            return self._break_up(todo)
        until = time.monotonic() + self._task.batch_seconds
        for number, delivery in enumerate(todo):
            if number and (self._limited or time.monotonic() > until):
                self._rest(todo[number:])
                break
            self._one(delivery)
        self._book.flush()
        return self._end()

    def _unsettled(self) -> list[Delivery]:
        deliveries = sorted(self._batch.deliveries, key=lambda delivery: delivery.message.offset)
        try:
            settled = self._book.settled([delivery.message.offset for delivery in deliveries])
        except LedgerUnavailable as error:
            retry_batch(self._task, self._batch, LEDGER_DELAY, str(error))
        if not settled:
            return deliveries
        for delivery in deliveries:
            if delivery.message.offset in settled:
                self._count("skipped")
                metrics.skipped(self._task.name)
                telling.skipped(delivery)
        return [delivery for delivery in deliveries if delivery.message.offset not in settled]

    def _break_up(self, todo: list[Delivery]) -> str:
        """A process was lost with this batch: each runs alone, so that the one that kills is found."""
        logger.warning("%s: a process was lost with it: its %d deliveries run alone.", str(self._batch), len(todo))
        for delivery in todo:
            self._send_on([delivery], 0)
        return f"broken up into {len(todo)}"

    def _rest(self, todo: list[Delivery]) -> None:
        """The time of this batch is over: what is left goes back to the queue as a batch of its own."""
        for delivery in todo:
            self._put_off(self._later_than(delivery) or 0.0, delivery)

    def _one(self, delivery: Delivery) -> None:
        about(delivery)
        delay = self._later_than(delivery)
        if delay is not None:
            # A message before it in its order runs again first.
            self._put_off(delay, delivery)
        elif delivery.dead is not None:
            self._bury(delivery, delivery.dead)
        else:
            self._handle(delivery)

    def _handle(self, delivery: Delivery) -> None:
        task, started = self._task, time.monotonic()
        vars(task.request)["failures"] = delivery.failures
        try:
            self._result = task.call(delivery.message)
            asked: RetryAsked | None = vars(task.request).pop("retry_asked", None)
            if asked is not None:
                raise asked
        except (WorkerShutdown, WorkerTerminate):
            raise
        except AlreadySettled:
            logger.info("%s: its work is committed already: not done again.", delivery.identity)
            self._done(delivery, started)
        except BaseException as error:
            # Also SystemExit, GeneratorExit and MemoryError: Celery would acknowledge, or stop the worker.
            if terminate_handler_fired():
                self._book.flush()
            _leave_if_told_to(error)
            metrics.ran(task.name, "failed", time.monotonic() - started)
            # The limit is the batch's; it comes once, and what is left gets its own.
            self._limited = isinstance(error, SoftTimeLimitExceeded)
            self._act(delivery, error)
        else:
            self._done(delivery, started)

    def _done(self, delivery: Delivery, started: float) -> None:
        metrics.ran(self._task.name, "done", time.monotonic() - started)
        self._count("done")
        self._book.done(delivery.message.offset, now=self._alone or self._suspect)

    def _act(self, delivery: Delivery, error: BaseException) -> None:
        now = time.time()
        age = 0.0 if delivery.first_failed_at is None else now - delivery.first_failed_at / 1000
        decision = self._task.policy.decide(error, delivery.failures, age)
        cause = error.error if isinstance(error, RetryAsked) and error.error else error
        failure = Failure.of(cause, now, traceback=isinstance(decision, Bury))
        match decision:
            case Drop():
                self._count("done")
                self._book.done(delivery.message.offset)
            case Again(delay, spent):
                again = delivery.failed(failure, spent=spent)
                metrics.retried(self._task.name, "failed" if spent else "postponed")
                telling.again(again, delay, failure)
                self._again(again, delay, failure)
            case Hold(delay):
                metrics.retried(self._task.name, "held")
                telling.held(delivery, delay, failure)
                self._again(delivery.failed(failure, spent=False), delay, failure)
            case Bury(reason):
                self._bury(delivery.failed(failure, spent=True), Dead(reason, failure), cause)

    def _again(self, delivery: Delivery, delay: float, failure: Failure) -> None:
        if self._alone:
            retry_batch(self._task, self._batch.holding([delivery]), delay, str(failure))
        self._block(delivery, delay)
        self._put_off(delay, delivery)

    def _bury(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Publish, wait for the acknowledgement, then mark the ledger; as long as Kafka cannot take it, later again."""
        try:
            publisher = Publisher.of(self._task.app)
            # Who ran it before may have been killed between the acknowledgement and the mark, or the mark is lost.
            forgot_at = self._book.forgot_at(delivery.message)
            again = self._comes_again and publisher.has_dead_letter(delivery)
            if not (again or (forgot_at is not None and publisher.has_dead_letter(delivery, forgot_at))):
                publisher.dead_letter(delivery, dead)
        except PublishFailed as error:
            delay = publish_delay(delivery.publish_tries)
            metrics.retried(self._task.name, "dead_letter_unpublished")
            telling.unpublished(delivery, dead, delay, error, cause)
            self._again(replace(delivery, dead=dead, publish_tries=delivery.publish_tries + 1), delay, dead.failure)
            return
        self._book.mark(delivery.message.offset, Fate.DEAD)
        metrics.dead_lettered(self._task.name, dead.reason)
        telling.dead(delivery, dead, cause)
        self._count("dead")
        self._dead = dead

    # What runs later

    def _block(self, delivery: Delivery, delay: float) -> None:
        if self._batch.order is not None:
            self._blocked[self._lane(delivery)] = delay

    def _later_than(self, delivery: Delivery) -> float | None:
        """Seconds after which the message before this one in its order runs again, if there is one."""
        if not self._blocked or (self._batch.order == "key" and delivery.message.key is None):
            return None
        return self._blocked.get(self._lane(delivery))

    def _lane(self, delivery: Delivery) -> bytes | None:
        return delivery.message.key if self._batch.order == "key" else None

    def _put_off(self, delay: float, delivery: Delivery) -> None:
        self._later.setdefault(delay, []).append(delivery)

    def _end(self) -> Any:
        """Send on what runs later: what is due together goes together."""
        for delay, deliveries in self._later.items():
            self._count("again" if delay else "put back", len(deliveries))
            self._send_on(deliveries, delay)
        if self._alone and self._dead is not None:
            raise DeadLettered(f"{self._dead.reason}: {self._dead.failure}")
        if self._alone:
            return self._result
        counted = ", ".join(f"{count} {what}" for what, count in self._counts.items())
        if self._dead is not None:
            # All is settled or sent on: a task in which something died is no success to those who look at tasks.
            raise DeadLettered(f"{counted}; the last: {self._dead.reason}: {self._dead.failure}")
        return counted

    def _send_on(self, deliveries: list[Delivery], delay: float) -> None:
        task = self._task
        send_on(task.app, self._batch.holding(deliveries), delay, task.request.delivery_info or {})

    def _count(self, what: str, by: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + by
