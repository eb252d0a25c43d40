"""Sends a Celery message again, without the ways in which Celery would lose it."""

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NoReturn

from celery import Celery, Task
from celery.exceptions import Reject

from bridge.records.attempts import NONE
from bridge.records.gates import gates_for
from bridge.records.header import HEADER, to_header, to_joining
from bridge.records.losses import losses
from bridge.records.message import Batch
from bridge.records.naming import label
from lossless.transport.gates import GATES
from lossless.transport.joining import JOINS
from lossless.worker.losses import HISTORY
from tasks import redis_clock
from tasks.aftermath import cleared
from tasks.book import Book
from tasks.errors import Failed
from tasks.pace import NOTED
from tasks.running import MessageTask

#: Seconds between tries to publish a dead letter that Kafka does not take: first, and at most.
PUBLISH_DELAY: Final = (2, 60)
#: Headers in which lossless counts what a message has cost (lossless.worker.request, lossless.worker.consumer).
COUNTS: Final = ("lost", "restored", "prefetched", HISTORY)
#: Seconds of a wait from which on the ledger is told of it, for those who ask what takes so long.
NOTED_FROM: Final = 10.0
#: Seconds within which retries that are due travel together.
TOGETHER: Final = 0.1
#: More than any count of retries: how often a delivery runs is the policy's to say, not Celery's.
_NO_LIMIT: Final = 2**31


#: How many times as large as what joins it a message may be.
ENLARGES: Final = 16


def retry(task: Task, **options: Any) -> NoReturn:  # type: ignore[type-arg]
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
    options = _options(task.app, batch)
    sent = task.request.headers or {}
    _note(task.app, batch, delay)
    # How many processes it has cost goes on being counted, through failures too.
    options["headers"].update(cleared(sent) if ran else {name: sent[name] for name in COUNTS if name in sent})
    if noted := losses(options["headers"]):
        options["headers"][NOTED] = noted
    if delay and (ahead := redis_clock.ahead_of_redis(task.app, batch)):
        retry(task, eta=datetime.fromtimestamp(time.time() - ahead + delay, UTC), exc=Failed(words), **options)
    retry(task, countdown=delay, exc=Failed(words), **options)


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
    options = _options(app, batch)
    options["headers"].update(past)
    if queue := delivery_info.get("routing_key"):
        options["queue"] = queue
    if priority := delivery_info.get("priority"):
        options["priority"] = priority
    _note(app, batch, delay)
    # Redis reads and writes the whole of a message that is joined: few that join many cost it more than they save.
    most = min(most, ENLARGES * len(batch.deliveries))
    if delay and most > 1 and batch.order is None:
        header, joins = to_joining(batch, most)
        if options[GATES] != _gates(app, batch, again=False):
            # It waits at other gates than what has not failed.
            joins["name"] += " again"
        options["headers"] = {HEADER: header, JOINS: joins}
        options["eta"] = _slot(time.time() - redis_clock.ahead_of_redis(app, batch) + delay)
    elif delay and (ahead := redis_clock.ahead_of_redis(app, batch)):
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


def _note(app: Celery, batch: Batch, delay: float) -> None:
    if delay >= NOTED_FROM:
        Book.of(app, batch).waits(batch.offsets, time.time() - redis_clock.ahead_of_redis(app, batch) + delay)


def _options(app: Celery, batch: Batch) -> dict[str, Any]:
    # In an order the first is tried first, whatever comes behind it.
    failed = next((each.attempts for each in batch.deliveries), NONE)
    return {
        GATES: _gates(app, batch, again=bool(failed.failed or failed.postponed)),
        "headers": {HEADER: to_header(batch)},
        "argsrepr": label(batch.topic, batch.partition, batch.offsets),
        "kwargsrepr": "{}",
    }


def _gates(app: Celery, batch: Batch, again: bool) -> str:
    needs = getattr(app.tasks.get(batch.handler), "needs", ())
    return gates_for(batch.group, batch.topic, needs, again)
