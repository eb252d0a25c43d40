"""Runs a batch of deliveries (often of one) in the worker's child process, and settles each."""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from celery.exceptions import Reject, Retry, WorkerShutdown, WorkerTerminate
from kombu.exceptions import KombuError

from bridge.errors import (
    BridgeError,
    LedgerUnavailable,
    MalformedDelivery,
    NeverPublished,
    PublishFailed,
    RecordTooLarge,
)
from bridge.records.failure import Failure, cut
from bridge.records.header import HEADER, from_header, to_header
from bridge.records.message import ERROR_LENGTH, Batch, Dead, Delivery
from bridge.topics.names import tier
from bridge.topics.publisher import Clone
from lossless.worker.ending import ComeBack
from tasks import aftermath, metrics, observing, pace, progress, telling
from tasks.attempt import Attempts, leave_if_told_to
from tasks.book import Book
from tasks.breaking import PAUSE, Breaking
from tasks.ends import Ends
from tasks.errors import DeadLettered, Failed, GivenAway, RetryAsked, TopicHalted
from tasks.grip import Grip
from tasks.halting import LOOK_AGAIN_AFTER, Halting
from tasks.later import Later, Wait
from tasks.limits import watchdog
from tasks.logs import about
from tasks.pace import Laps
from tasks.parking import Parking
from tasks.policy import PERMANENT, Again, Bury, Decision, Drop, Halt
from tasks.policy_in_force import policy_in_force
from tasks.resending import publish_delay, retry_batch, send_on
from tasks.running import MessageTask
from tasks.sending import Sending, Unsent
from tasks.settling import Settling, follows_a_loss

logger = observing.log(__name__)

#: Seconds before a delivery is tried again while the ledger does not say whether it is settled.
LEDGER_DELAY: Final = 5.0
#: Seconds that a part of a batch may take whose time was over.
WITHIN: Final = 0.05
#: What a message has cost that has cost nothing.
NO_PAST: Final[Mapping[str, Any]] = MappingProxyType({})
#: Seconds, at the most, after which it is looked again whether what comes before a delivery in its order has ended.
BEHIND: Final = 60.0
#: Retries that travel together, at the most, where nobody has said how large a batch is to be.
MOST: Final = 500


def execute(task: MessageTask[..., Any], header: object) -> Any:
    """Run the batch in a `kafka` header to its end, or to its next run.

    Returns:
        what the handler returned; for several deliveries, how many ended how.

    Raises:
        Retry: the only delivery was sent again, or parked, to run later.
        DeadLettered: Kafka has the dead letters of all that died, and all else is settled or sent on.
        ComeBack: they could not all be settled; the message comes again with those that are not.
        Reject: the header is none that this version can read; the message comes again as it is.
    """
    begun = time.monotonic()
    try:
        batch = from_header(task.name, header)
    except MalformedDelivery as error:
        # Not ours, or of a newer version of this project: it waits for a worker that can read it.
        logger.error("%s", str(error))
        raise Reject(str(error), requeue=True) from None
    execution, dog = Execution(task, batch, begun), watchdog()
    if dog is not None:
        dog.executing = True
    try:
        result = execution.settle()
    except Exception:
        execution.note_pace()
        raise
    else:
        execution.note_pace()
        return result
    finally:
        execution.note_carrier()
        if dog is not None:
            dog.executing = False
        about(None)


class Execution:
    """One run of a batch: its deliveries one after another, each with a fate of its own."""

    def __init__(self, task: MessageTask[..., Any], batch: Batch, begun: float) -> None:
        self._task, self._batch = task, batch
        self._alone = len(batch.deliveries) == 1
        self._book = Book.of(task.app, batch)
        self._settling = Settling.of(task, batch, self._book)
        #: A process or a whole worker died with it: it runs apart from others.
        self._suspect = follows_a_loss(task.request.headers or {})
        #: What has not ended, as it is now: what comes again if this run cannot be brought to its end.
        self._left = {delivery.message.offset: delivery for delivery in batch.deliveries}
        self._laps = Laps(begun)
        #: Seconds for which Kafka took the dead letter of the delivery at hand.
        self._burying = 0.0
        self._runs = metrics.Runs(task.name, batch.group)
        self._attempts = Attempts(task, batch, self._last_will)
        self._halting = Halting.of(task.app, batch)
        self._later = Later(batch.order)
        self._parking = Parking(task, batch)
        self._sending = Sending(task.app)
        #: Of these the handlers have succeeded, and what they send is not published yet.
        self._unsent: list[Unsent] = []
        self._failures: dict[int, Failure] = {}
        #: One moment for all: what is due together waits together again.
        self._begun = time.time()
        #: Of those that others come after in their order: what has ended.
        self._over: set[int] = set()
        self._grip = Grip.of(task)
        self._ends = Ends(batch.topic, batch.partition)
        #: The mark of a single delivery is not put off for others.
        self._progress = None if self._alone else progress.begin(str(task.request.id))
        self._breaking = Breaking.of(task, batch.group)
        self._result: Any = None
        self._dead: Dead | None = None

    def settle(self) -> Any:
        """Run it. Whatever goes wrong on the way, what has not ended stays in the broker, and what was done is done."""
        try:
            return self.run()
        except (Retry, DeadLettered, WorkerShutdown, WorkerTerminate):
            raise
        except GivenAway as gone:
            return self._give_up(gone)
        except TopicHalted as halted:
            raise self._waits(halted) from None
        except BaseException as error:
            leave_if_told_to(error)
            left = self._left_over()
            if not left:
                logger.exception("%s: all of it has ended, but then: %s", str(self._batch), type(error).__name__)
                return self._end()
            foreseen = isinstance(error, BridgeError | Reject | KombuError | OSError)
            level = logging.WARNING if foreseen else logging.ERROR
            logger.log(level, "%s comes again: %s", str(self._batch), str(error), exc_info=not foreseen)
            why = f"{self._batch} could not be settled: {type(error).__name__}"
            past = aftermath.acquitted(self._task.request.headers or {})
            raise ComeBack(why, {HEADER: to_header(self._batch.holding(left)), **past}) from None
        finally:
            self._runs.tell()

    def _give_up(self, gone: GivenAway) -> str:
        """What is not done is others' to do; what is done is marked, so that they find it so."""
        logger.warning("%s: %s: what is not done of it is left to others.", str(self._batch), str(gone))
        with suppress(LedgerUnavailable):
            self._book.flush()
        return f"given away: {self._ends}"

    def _waits(self, halted: TopicHalted) -> ComeBack:
        """What has not run waits in front of all else of its topic; it has spent nothing."""
        try:
            self._book.flush()
        except LedgerUnavailable as error:
            logger.debug("%s", error)
        header = to_header(self._batch.holding(self._left_over()))
        past = aftermath.acquitted(self._task.request.headers or {})
        why, headers = f"it waits: {halted}", {HEADER: header, **past}
        return ComeBack(why, headers, self._halting.gate, LOOK_AGAIN_AFTER, halted.first)

    def _last_will(self) -> None:
        """What was done before a handler that ends the process is done, and counted."""
        self._book.flush(0)
        self._runs.tell()

    def note_pace(self) -> None:
        """Note what its deliveries took, for the size of the batches to come."""
        if self._task.batch == "auto":
            pace.note(self._book.ledger, self._batch.handler, self._laps.cost())

    def _left_over(self) -> list[Delivery]:
        """What has not ended; and what has, as far as the ledger has not been told."""
        return self._settling.left_of(delivery for _, delivery in sorted(self._left.items()))

    def run(self) -> Any:
        """Run what is not settled; then send on what must run later; then mark, and return."""
        self._grip.check()
        todo = aftermath.counted(self._unsettled(), self._task.request.headers or {})
        self._left.update({delivery.message.offset: delivery for delivery in todo})
        if self._task.batch == "auto" and pace.follows_new_loss(self._task.request.headers or {}):
            pace.lost(self._book.ledger, self._batch.handler)
        if self._suspect and len(todo) > 1 and self._batch.order is None:
            return self._break_up(todo)
        now = time.monotonic()
        until = now + self._task.batch_seconds
        for number, delivery in enumerate(todo):
            if number and now > until:
                self._rest(todo[number:])
                break
            self._grip.check()
            self._halting.check()
            try:
                self._one(delivery)
            finally:
                now = self._laps.lap(now, self._burying)
                self._burying = 0.0
        self._publish()
        self._book.flush()
        return self._end()

    def _unsettled(self) -> list[Delivery]:
        deliveries = sorted(self._batch.deliveries, key=lambda delivery: delivery.message.offset)
        behind = sorted({delivery.after for delivery in deliveries if delivery.after is not None})
        if not behind and self._settling.is_new(deliveries[0], self._task.request.properties):
            return deliveries
        try:
            if behind:
                self._over = self._book.over(behind)
            settled = self._book.settled([delivery.message.offset for delivery in deliveries])
        except LedgerUnavailable as error:
            retry_batch(self._task, self._batch, LEDGER_DELAY, str(error), ran=False)
        if not settled:
            return deliveries
        for delivery in deliveries:
            if delivery.message.offset in settled:
                self._ends.add("skipped", delivery.message.offset)
                self._left.pop(delivery.message.offset)
                metrics.skipped(self._task.name, self._batch.group)
                telling.skipped(delivery)
        return [delivery for delivery in deliveries if delivery.message.offset not in settled]

    def _break_up(self, todo: list[Delivery]) -> str:
        """A process was lost with this batch: the one that was running runs alone, or each where that is not known."""
        parts = aftermath.apart(todo, self._task.request.headers or {})
        logger.warning("%s: a process was lost with it: it goes on in %d parts.", str(self._batch), len(parts))
        for deliveries, past in parts:
            self._send_on(deliveries, 0, past)
        return f"broken up into {len(parts)}"

    def _rest(self, todo: list[Delivery]) -> None:
        """The time of this batch is over: what is left goes back to the queue as a batch of its own.

        Where nobody has said how large a batch is to be, as several: others may be idle.
        """
        if self._task.batch == "auto" and self._batch.order is None:
            most = max(1, int(WITHIN * self._laps.pace))
            for start in range(0, len(todo), most):
                self._send_on(todo[start : start + most], 0)
            for delivery in todo:
                self._ends.add("put back", delivery.message.offset)
            return
        for delivery in todo:
            self._later.put_off(delivery, self._later.wait_of(delivery) or Wait(0.0))

    def _one(self, delivery: Delivery) -> None:
        about(delivery)
        if self._progress is not None:
            self._progress.running(delivery.message.offset)
        wait = self._later.wait_of(delivery)
        if delivery.ended:
            self._end_again(delivery)
        elif wait is not None:
            # A message before it in its order runs again first.
            self._later.put_off(delivery, wait)
        elif delivery.due is not None and (left := delivery.due - self._begun) > 0:
            # What has ended but for its dead letter, or for what it sends, does not run again: it is not parked.
            wait_on = self._again if delivery.dead is not None or delivery.outgoing else self._put_off
            wait_on(delivery, left, "its time has not come")
        elif delivery.after is not None and delivery.after not in self._over:
            self._stay_behind(delivery)
        elif delivery.dead is not None:
            self._bury(delivery, delivery.dead)
        elif delivery.outgoing:
            self._done(delivery)
        elif not self._breaking.admits():
            metrics.retried(self._task.name, self._batch.group, "postponed")
            self._again(delivery, PAUSE, "what it needs is down")
        else:
            self._handle(self._breaking.forgiven(delivery))

    def _end_again(self, delivery: Delivery) -> None:
        """It ended in an earlier run, which could not tell the ledger."""
        self._ends.add(delivery.ended, delivery.message.offset)
        self._settling.ended_before(delivery)
        if delivery.ended != "parked":
            self._over.add(delivery.message.offset)

    def _stay_behind(self, delivery: Delivery) -> None:
        """The one before it in its order, behind which it was parked, has not ended: so it waits, ever longer."""
        delay = min(2.0**delivery.publish_tries, BEHIND)
        again = replace(delivery, publish_tries=delivery.publish_tries + 1)
        self._put_off(again, delay, f"offset {delivery.after}, before it in its order, has not ended")

    def _handle(self, delivery: Delivery) -> None:
        if delivery.after is not None or delivery.publish_tries:
            delivery = replace(delivery, after=None, publish_tries=0)
        ended = self._attempts.at(delivery)
        self._runs.ended("done" if ended.error is None else "failed", ended.seconds)
        if self._task.batch == "auto":
            pace.ran(self._book.ledger, self._batch.handler, ended.seconds)
        if ended.error is None:
            self._result = ended.returned
            self._breaking.good()
            self._done(delivery)
        else:
            self._grip.check()
            self._act(delivery, ended.error)

    def _done(self, delivery: Delivery) -> None:
        """Its handler has succeeded: it is done when what that sends is published."""
        unsent = Unsent.of(delivery)
        if unsent is None:
            self._settle(delivery)
            return
        self._unsent.append(unsent)
        if self._batch.order is not None:
            # What comes after it in its order may not be sent before it.
            self._publish()

    def _publish(self) -> None:
        """Publish what the handlers send, of the whole batch together; what Kafka does not take comes again."""
        if not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        for each, failed in zip(unsent, self._sending.publish(unsent), strict=True):
            if failed is None:
                self._settle(each.delivery)
            elif isinstance(failed, NeverPublished):
                failure = Failure.of(failed, traceback=False)
                self._bury(each.delivery.failed(failure, spent=True), Dead(PERMANENT, failure), failed)
            else:
                delay = publish_delay(each.delivery.publish_tries)
                metrics.retried(self._task.name, self._batch.group, "unsent")
                telling.unsent(each.delivery, delay, failed)
                self._again(replace(each.again, publish_tries=each.delivery.publish_tries + 1), delay, str(failed))

    def _settle(self, delivery: Delivery) -> None:
        if self._progress is not None:
            self._progress.done(delivery.message.offset)
        self._ends.add("done", delivery.message.offset)
        self._settling.done(delivery)
        self._over.add(delivery.message.offset)

    def _act(self, delivery: Delivery, error: BaseException) -> None:
        now = time.time()
        cause = error.error if isinstance(error, RetryAsked) and error.error else error
        decision = self._breaking.judged(delivery, cause, self._decided(delivery, error, now))
        failure = Failure.of(cause, now, traceback=isinstance(decision, Bury))
        match decision:
            case Drop():
                self._done(delivery)
            case Again(delay, spent):
                again = delivery.failed(failure, spent=spent)
                metrics.retried(self._task.name, self._batch.group, "failed" if spent else "postponed")
                self._failures[delivery.message.offset] = failure
                self._put_off(again, delay, str(failure), failure)
            case Halt():
                metrics.retried(self._task.name, self._batch.group, "halted")
                self._left[delivery.message.offset] = delivery.failed(failure, spent=False)
                self._halting.stop(delivery, failure, cause)
                raise TopicHalted(f"topic {self._batch.topic!r} was halted by it: {failure}", first=True)
            case Bury(reason, why):
                dead = Dead(reason, failure.with_why(why))
                self._bury(delivery.failed(dead.failure, spent=True), dead, cause)

    def _decided(self, delivery: Delivery, error: BaseException, now: float) -> Decision:
        policy = policy_in_force(self._task, self._batch.group)
        age = 0.0 if delivery.first_failed_at is None else now - delivery.first_failed_at / 1000
        if policy.retry_when is None:
            return policy.decide(error, delivery.attempts.failed, age, real=self._parking.real)
        return self._attempts.judged(
            lambda: policy.decide(
                error,
                delivery.attempts.failed,
                age,
                real=self._parking.real,
                message=delivery.message,
                report=lambda fault: telling.not_taken(delivery, fault),
            )
        )

    def _put_off(self, delivery: Delivery, delay: float, words: str, failure: Failure | None = None) -> None:
        """It runs later: by a retry topic, where one is for so long a wait; else it waits in Celery."""
        if not self._parking.parks(delay):
            if failure is not None:
                telling.again(delivery, delay, failure)
            self._again(delivery, delay, words)
            return
        self._left[delivery.message.offset] = replace(delivery, due=time.time() + delay)
        self._later.again(replace(delivery, due=None), Wait(delay, parked=True))

    def _again(self, delivery: Delivery, delay: float, words: str) -> None:
        """It waits in Celery."""
        self._left[delivery.message.offset] = replace(delivery, due=time.time() + delay)
        if self._alone:
            retry_batch(self._task, self._batch.holding([replace(delivery, due=None)]), delay, words)
        self._later.again(replace(delivery, due=None), Wait(delay))

    def _bury(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Write its dead letter; as long as Kafka cannot take it, later again."""
        since = time.monotonic()
        try:
            self._settling.dead(delivery, dead, cause)
        except PublishFailed as error:
            delay = publish_delay(delivery.publish_tries)
            metrics.retried(self._task.name, self._batch.group, "dead_letter_unpublished")
            telling.unpublished(delivery, dead, delay, error, cause)
            waiting = replace(delivery, dead=dead, publish_tries=delivery.publish_tries + 1)
            self._again(waiting, delay, str(dead.failure))
            return
        finally:
            self._burying += time.monotonic() - since
        self._ends.add("dead", delivery.message.offset)
        self._over.add(delivery.message.offset)
        self._dead = self._dead or dead

    def _end(self) -> Any:
        """Park, or send on, what runs later: what is due together goes together."""
        self._grip.check()
        parked = self._park()
        for delay, deliveries in self._later.take():
            self._send_on(deliveries, delay)
            for delivery in deliveries:
                self._ends.add("again" if delay else "put back", delivery.message.offset)
        if self._dead is not None:
            # A task with a dead letter is a failed one for Flower, however many of its batch were done.
            raise DeadLettered(self._epitaph(self._dead))
        if self._alone and parked:
            # For Flower, too, it is a task that runs again; only that it is not Celery that sends it.
            due = datetime.fromtimestamp(parked[0].due / 1000, UTC)
            raise Retry(parked[0].delivery.error, Failed(parked[0].delivery.error), due)
        return self._result if self._alone else str(self._ends)

    def _park(self) -> list[Clone]:
        """Write what waits in retry topics there; what Kafka does not take stays in Celery, and spends nothing."""
        waits = self._later.take_parked()
        if not waits:
            return []
        clones = [
            self._parking.clone(delivery, delay, self._failures.get(delivery.message.offset))
            for delay, delivery in waits
        ]
        parked = []
        failures = self._settling.park(clones, self._parking.delays)
        for (delay, delivery), clone, failed in zip(waits, clones, failures, strict=True):
            if failed is None:
                parked.append(clone)
                self._left.pop(delivery.message.offset)
                self._ends.add("parked", delivery.message.offset)
                metrics.parked(self._task.name, self._batch.group, tier(clone.delay))
                telling.parked(clone.delivery, self._parking.topic(clone), clone.until or clone.due, clone.failure)
            else:
                self._stay_in_celery(delivery, delay, failed)
        return parked

    def _stay_in_celery(self, delivery: Delivery, delay: float, failed: PublishFailed) -> None:
        """Kafka did not take it: it is tried again later. What is too large for its topic waits in Celery whole."""
        pause = delay if isinstance(failed, RecordTooLarge) else min(delay, publish_delay(delivery.publish_tries))
        telling.unparked(delivery, pause, failed)
        metrics.retried(self._task.name, self._batch.group, "not_parked")
        # What must come before it may not have been parked either, and is put off likewise.
        self._left[delivery.message.offset] = again = replace(
            delivery,
            due=self._left[delivery.message.offset].due,
            publish_tries=delivery.publish_tries + 1,
        )
        if self._alone:
            retry_batch(self._task, self._batch.holding([again]), pause, str(failed))
        self._later.put_off(again, Wait(pause))

    def _epitaph(self, first: Dead) -> str:
        if self._alone:
            return f"{first.reason}: {first.failure}"
        words = cut(str(first.failure), ERROR_LENGTH)
        return f"{self._ends.counts}; the first of the dead: {first.reason}: {words}; {self._ends.names}"

    def note_carrier(self) -> None:
        """Note which task carried what has ended."""
        self._settling.note_carrier(self._task.request.id)

    def _send_on(self, deliveries: list[Delivery], delay: float, past: Mapping[str, Any] = NO_PAST) -> None:
        task = self._task
        batch = self._batch.holding(deliveries)
        send_on(task.app, batch, delay, task.request.delivery_info or {}, self._most_together(), past)
        for delivery in deliveries:
            self._left.pop(delivery.message.offset, None)

    def _most_together(self) -> int:
        """How many deliveries one message may carry to which retries of this batch are joined."""
        if self._task.batch != "auto":
            return self._task.batch
        return max(len(self._batch.deliveries), int(min(MOST, WITHIN * self._laps.pace)))
