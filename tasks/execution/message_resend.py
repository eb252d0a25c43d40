"""Celery messages that are sent again without Celery's ways to lose them, and the return of a batch that broke off."""

import logging
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NoReturn

from celery import Celery, Task
from celery.exceptions import Reject
from celery.utils.quorum_queues import detect_quorum_queues
from kombu.exceptions import KombuError

from bridge.errors import BridgeError, LedgerUnavailable
from bridge.formats.celery_header import HEADER, count_losses, to_header, to_joining
from bridge.formats.delivery import NO_ATTEMPTS, Batch
from bridge.formats.delivery_identity import label_records
from bridge.formats.gate_names import gates_for
from lossless.backoff import Backoff
from lossless.transport.delayed_messages import JOINS
from lossless.transport.message_gates import GATES
from lossless.transport.redis_outage import describe_redis_error
from lossless.worker.process_death import LOSS_HISTORY
from lossless.worker.run_outcome import ComeBack
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.errors import Failed, GivenAway, TopicHalted
from tasks.execution import process_loss, redis_clock
from tasks.execution.batch_fates import BatchFates
from tasks.execution.batch_progress import BatchState
from tasks.execution.halt_gate import LOOK_AGAIN_AFTER
from tasks.execution.process_loss import clear_loss_headers
from tasks.execution.settlement import Settlement
from tasks.worker.delivery_cost import NOTED_LOSSES

#: Seconds between attempts to publish a dead letter that Kafka does not take.
PUBLISH_BACKOFF: Final = Backoff(first=2, most=60)
#: Headers in which lossless counts lost processes and workers (lossless.worker.request, lossless.worker.consumer).
LOSS_HEADERS: Final = ("lost", "restored", "prefetched", LOSS_HISTORY)
#: Seconds from which on a wait is noted in the ledger, for `bridge status` and `bridge find`.
NOTED_FROM: Final = 10.0
#: Seconds of a slot: retries due in one slot travel together.
TOGETHER: Final = 0.1
#: Seconds that a message waits at least in RabbitMQ, which counts whole ones.
SHORTEST: Final = 1.0
#: More than any count of retries: the policy limits them, not Celery.
_NO_LIMIT: Final = 2**31


#: How many times as large a message may be as the one that joins it.
ENLARGES: Final = 16


def retry_task(task: Task, **options: Any) -> NoReturn:  # type: ignore[type-arg]
    """Call Celery's own retry, not the handlers' one, without its limit and without its loss.

    Raises:
        Retry: the message was sent again.
        Reject: it could not be sent; the broker keeps the current message.
    """
    try:
        Task.retry(task, max_retries=_NO_LIMIT, **options)
    except Reject as error:
        # Celery gives up a message whose retry it cannot publish (celery/app/task.py:958-961).
        raise Reject(vars(error)["reason"], requeue=True) from None
    raise AssertionError("Task.retry always raises")


def retry_batch(task: MessageTask[..., Any], batch: Batch, delay: float, words: str, *, ran: bool = True) -> NoReturn:
    """Send the current message again with this batch, as a Celery retry.

    A crash between sending and acknowledging repeats the delivery.

    Parameters:
        ran: whether its handler has ended, which clears the message of the workers that died with it.
    """
    delay = _longer_in_rabbitmq(task.app, delay)
    options = _send_options(task.app, batch)
    sent = task.request.headers or {}
    _note_waiting(task.app, batch, delay)
    # The count of lost processes goes on, through failures too.
    options["headers"].update(
        clear_loss_headers(sent) if ran else {name: sent[name] for name in LOSS_HEADERS if name in sent}
    )
    if noted := count_losses(options["headers"]):
        options["headers"][NOTED_LOSSES] = noted
    if delay and (ahead := redis_clock.measure_countdown_lead(task.app, batch)):
        retry_task(task, eta=datetime.fromtimestamp(time.time() - ahead + delay, UTC), exc=Failed(words), **options)
    retry_task(task, countdown=delay, exc=Failed(words), **options)


def send_on(
    app: Celery,
    batch: Batch,
    delay: float,
    delivery_info: Mapping[str, Any],
    most: int = 1,
    past: Mapping[str, Any] = MappingProxyType({}),
    held: str = "",
) -> None:
    """Send a part of the current batch as a message of its own, or joined to others; return when the broker has it.

    Parameters:
        delay: seconds before it runs.
        most: how many deliveries one message may carry: with more than one, those of several batches that are due
            within `TOGETHER` seconds travel together, where our own transport carries them.
        delivery_info: of the current message; the part goes to the same queue.
        past: the loss headers.
        held: the gate of the halted key for which the part waits; empty: it does not wait for one.

    Raises:
        kombu.exceptions.OperationalError: the broker did not take it.
    """
    delay = _longer_in_rabbitmq(app, delay)
    options = _send_options(app, batch, held)
    options["headers"].update(past)
    if queue := delivery_info.get("routing_key"):
        options["queue"] = queue
    if priority := delivery_info.get("priority"):
        options["priority"] = priority
    _note_waiting(app, batch, delay)
    # Redis rewrites the whole message that others join: a few joining many cost more than they save.
    most = min(most, ENLARGES * len(batch.deliveries))
    # With quorum queues Celery raises for a due time that is less than a second away once it publishes: a frozen
    # process lets that time pass, but not a countdown.
    if delay and most > 1 and batch.order is None and not detect_quorum_queues(app, "amqp")[0]:
        header, joins = to_joining(batch, options["headers"][HEADER], most)
        if options[GATES] != _gates(app, batch, again=False):
            # Failed deliveries wait at other gates than new ones.
            joins["name"] += " again"
        options["headers"] = {HEADER: header, JOINS: joins}
        options["eta"] = _slot(time.time() - redis_clock.measure_countdown_lead(app, batch) + delay)
    elif delay and (ahead := redis_clock.measure_countdown_lead(app, batch)):
        options["eta"] = datetime.fromtimestamp(time.time() - ahead + delay, UTC)
    else:
        options["countdown"] = delay or None
    app.send_task(batch.handler, (), {}, task_id=batch.task_id, ignore_result=True, **options)


def _longer_in_rabbitmq(app: Celery, delay: float) -> float:
    """Return a wait with which Celery can publish to a quorum queue: it raises for less than a second."""
    return SHORTEST if 0 < delay < SHORTEST and detect_quorum_queues(app, "amqp")[0] else delay


def _slot(due: float) -> datetime:
    """Return the slot of a due time: the first moment from then on at which others are due too."""
    return datetime.fromtimestamp(math.ceil(due / TOGETHER) * TOGETHER, UTC)


def _note_waiting(app: Celery, batch: Batch, delay: float) -> None:
    if delay >= NOTED_FROM:
        due = time.time() - redis_clock.measure_clock_lead(app, batch) + delay
        BatchFates.for_batch(app, batch).note_waiting(batch.offsets, due)


def _send_options(app: Celery, batch: Batch, held: str = "") -> dict[str, Any]:
    # In an order the first delivery decides.
    failed = next((delivery.attempts for delivery in batch.deliveries), NO_ATTEMPTS)
    return {
        GATES: _gates(app, batch, again=bool(failed.failed or failed.postponed), held=held),
        "headers": {HEADER: to_header(batch)},
        "argsrepr": label_records(batch.topic, batch.partition, batch.offsets),
        "kwargsrepr": "{}",
    }


def _gates(app: Celery, batch: Batch, again: bool, held: str = "") -> str:
    needs = getattr(app.tasks.get(batch.handler), "needs", ())
    return gates_for(batch.group, batch.topic, needs, again, held)


# The logger of the batch's run, whose readers need these lines.
logger = logs.harmless_logger("tasks.execution.batch_run")


def find_reject_cause(error: BaseException) -> tuple[str, str]:
    """Return the class and the words of the error for which a message is redelivered, or of a `Reject`'s reason.

    Celery's own text of a `Reject` is a tuple, and says nothing of what to do.
    """
    cause = vars(error)["reason"] if isinstance(error, Reject) else None
    if not isinstance(cause, BaseException):
        return type(error).__name__, str(error)
    return type(cause).__name__, f"the message of its retry could not be sent: {describe_redis_error(cause)}"


class BatchReturn:
    """The return of one batch's message after its run broke off."""

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, fates: BatchFates, settlement: Settlement, state: BatchState
    ) -> None:
        self._task, self._batch, self._fates = task, batch, fates
        self._settlement, self._state = settlement, state

    def give_up(self, gone: GivenAway) -> str:
        """Mark the done deliveries, and leave the rest to the workers that have the message by now."""
        logger.warning("%s: %s; the deliveries that are not done are left to them.", str(self._batch), str(gone))
        with suppress(LedgerUnavailable):
            self._fates.flush()
        return f"given away: {self._state.ends}"

    def wait_at_gate(self, halted: TopicHalted, gate: str) -> ComeBack:
        """Return the error that puts unsettled deliveries in front of their halted topic, handler or key; they spend no
        attempt.
        """
        try:
            self._fates.flush()
        except LedgerUnavailable as error:
            logger.debug("%s", error)
        gate = halted.gate or gate
        return ComeBack(f"it waits: {halted}", self._headers(self._left()), gate, LOOK_AGAIN_AFTER, halted.first)

    def redeliver(self, error: BaseException) -> ComeBack | None:
        """Return the error that redelivers unsettled deliveries; `None`: there are none. Call it in the handler of
        `error`.
        """
        left = self._left()
        if not left.deliveries:
            logger.exception("%s: all had ended before the run failed: %s", str(self._batch), type(error).__name__)
            return None
        foreseen = isinstance(error, BridgeError | Reject | KombuError | OSError)
        level = logging.WARNING if foreseen else logging.ERROR
        cause, words = find_reject_cause(error)
        logger.log(level, "%s is redelivered: %s", str(self._batch), words, exc_info=not foreseen)
        return ComeBack(f"{self._batch} could not be settled: {cause}", self._headers(left))

    def _left(self) -> Batch:
        """Return the batch of deliveries that have not ended, or whose end the ledger does not know."""
        return self._batch.holding(self._settlement.find_unconfirmed(self._state.left()))

    def _headers(self, left: Batch) -> dict[str, Any]:
        return process_loss.headers_of_return(left, self._task.request.headers or {})
