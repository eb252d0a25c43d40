"""Celery messages that are sent again, without the ways in which Celery would lose them; and the return of a batch
whose run could not be brought to its end.
"""

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
from kombu.exceptions import KombuError

from bridge.errors import BridgeError, LedgerUnavailable
from bridge.formats.celery_header import HEADER, count_losses, to_header, to_joining
from bridge.formats.delivery import NO_ATTEMPTS, Batch
from bridge.formats.delivery_identity import label_records
from bridge.formats.gate_names import gates_for
from lossless.transport.delayed_messages import JOINS
from lossless.transport.message_gates import GATES
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

#: Seconds between tries to publish a dead letter that Kafka does not take: first, and at most.
PUBLISH_DELAY: Final = (2, 60)
#: Headers in which lossless counts what a message has cost (lossless.worker.request, lossless.worker.consumer).
LOSS_HEADERS: Final = ("lost", "restored", "prefetched", LOSS_HISTORY)
#: Seconds of a wait from which on the ledger is told of it, for those who ask what takes so long.
NOTED_FROM: Final = 10.0
#: Seconds within which retries that are due travel together.
TOGETHER: Final = 0.1
#: More than any count of retries: how often a delivery runs is the policy's to say, not Celery's.
_NO_LIMIT: Final = 2**31


#: How many times as large as what joins it a message may be.
ENLARGES: Final = 16


def retry_task(task: Task, **options: Any) -> NoReturn:  # type: ignore[type-arg]
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


def retry_batch(task: MessageTask[..., Any], batch: Batch, delay: float, words: str, *, ran: bool = True) -> NoReturn:
    """Send the message in hand again with this batch, as a Celery retry.

    A crash between sending and acknowledging repeats the delivery.

    Parameters:
        ran: whether its handler has come to an end; so it is cleared of the workers that died with it.
    """
    options = _send_options(task.app, batch)
    sent = task.request.headers or {}
    _note_waiting(task.app, batch, delay)
    # How many processes it has cost goes on being counted, through failures too.
    options["headers"].update(
        clear_loss_headers(sent) if ran else {name: sent[name] for name in LOSS_HEADERS if name in sent}
    )
    if noted := count_losses(options["headers"]):
        options["headers"][NOTED_LOSSES] = noted
    if delay and (ahead := redis_clock.measure_clock_lead(task.app, batch)):
        retry_task(task, eta=datetime.fromtimestamp(time.time() - ahead + delay, UTC), exc=Failed(words), **options)
    retry_task(task, countdown=delay, exc=Failed(words), **options)


def send_on(
    app: Celery,
    batch: Batch,
    delay: float,
    delivery_info: Mapping[str, Any],
    most: int = 1,
    past: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Send a part of the batch in hand as a message of its own, or with others'; returns when the broker has it.

    Parameters:
        delay: seconds before it runs.
        most: how many deliveries one message may carry: with more than one, those of several batches that are due
            within `TOGETHER` seconds travel together, where our own transport carries them.
        delivery_info: of the message in hand; the part goes to the same queue.
        past: headers that say what it has cost.

    Raises:
        kombu.exceptions.OperationalError: the broker did not take it.
    """
    options = _send_options(app, batch)
    options["headers"].update(past)
    if queue := delivery_info.get("routing_key"):
        options["queue"] = queue
    if priority := delivery_info.get("priority"):
        options["priority"] = priority
    _note_waiting(app, batch, delay)
    # Redis reads and writes the whole of a message that is joined: few that join many cost it more than they save.
    most = min(most, ENLARGES * len(batch.deliveries))
    if delay and most > 1 and batch.order is None:
        header, joins = to_joining(batch, most)
        if options[GATES] != _gates(app, batch, again=False):
            # It waits at other gates than what has not failed.
            joins["name"] += " again"
        options["headers"] = {HEADER: header, JOINS: joins}
        options["eta"] = _slot(time.time() - redis_clock.measure_clock_lead(app, batch) + delay)
    elif delay and (ahead := redis_clock.measure_clock_lead(app, batch)):
        options["eta"] = datetime.fromtimestamp(time.time() - ahead + delay, UTC)
    else:
        options["countdown"] = delay or None
    app.send_task(batch.handler, (), {}, task_id=batch.task_id, ignore_result=True, **options)


def _slot(due: float) -> datetime:
    """The first moment from then on at which others are due too."""
    return datetime.fromtimestamp(math.ceil(due / TOGETHER) * TOGETHER, UTC)


def publish_delay(tries: int) -> int:
    """Seconds before the next try to publish a dead letter, after that many that failed before."""
    first, most = PUBLISH_DELAY
    return int(min(most, first * 2 ** min(tries, 10)))


def _note_waiting(app: Celery, batch: Batch, delay: float) -> None:
    if delay >= NOTED_FROM:
        BatchFates.of(app, batch).waits(batch.offsets, time.time() - redis_clock.measure_clock_lead(app, batch) + delay)


def _send_options(app: Celery, batch: Batch) -> dict[str, Any]:
    # In an order the first is tried first, whatever comes behind it.
    failed = next((each.attempts for each in batch.deliveries), NO_ATTEMPTS)
    return {
        GATES: _gates(app, batch, again=bool(failed.failed or failed.postponed)),
        "headers": {HEADER: to_header(batch)},
        "argsrepr": label_records(batch.topic, batch.partition, batch.offsets),
        "kwargsrepr": "{}",
    }


def _gates(app: Celery, batch: Batch, again: bool) -> str:
    needs = getattr(app.tasks.get(batch.handler), "needs", ())
    return gates_for(batch.group, batch.topic, needs, again)


# As where the batch runs: one who reads the logs of that reads these.
logger = logs.harmless_logger("tasks.execution.batch_run")


class BatchReturn:
    """Where the message of one batch goes whose run was broken off."""

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, fates: BatchFates, settlement: Settlement, state: BatchState
    ) -> None:
        self._task, self._batch, self._fates = task, batch, fates
        self._settlement, self._state = settlement, state

    def given_up(self, gone: GivenAway) -> str:
        """What is not done is others' to do; what is done is marked, so that they find it so."""
        logger.warning("%s: %s: what is not done of it is left to others.", str(self._batch), str(gone))
        with suppress(LedgerUnavailable):
            self._fates.flush()
        return f"given away: {self._state.ends}"

    def waits(self, halted: TopicHalted, gate: str) -> ComeBack:
        """What has not run waits in front of all else of its topic; it has spent nothing."""
        try:
            self._fates.flush()
        except LedgerUnavailable as error:
            logger.debug("%s", error)
        return ComeBack(f"it waits: {halted}", self._headers(self._left()), gate, LOOK_AGAIN_AFTER, halted.first)

    def broken(self, error: BaseException) -> ComeBack | None:
        """What has not ended comes again; `None`: all has. Call it where the error is handled."""
        left = self._left()
        if not left.deliveries:
            logger.exception("%s: all of it has ended, but then: %s", str(self._batch), type(error).__name__)
            return None
        foreseen = isinstance(error, BridgeError | Reject | KombuError | OSError)
        level = logging.WARNING if foreseen else logging.ERROR
        logger.log(level, "%s comes again: %s", str(self._batch), str(error), exc_info=not foreseen)
        return ComeBack(f"{self._batch} could not be settled: {type(error).__name__}", self._headers(left))

    def _left(self) -> Batch:
        """What has not ended; and what has, as far as the ledger has not been told."""
        return self._batch.holding(self._settlement.find_unsettled(self._state.left()))

    def _headers(self, left: Batch) -> dict[str, Any]:
        return process_loss.headers_of_return(left, self._task.request.headers or {})
