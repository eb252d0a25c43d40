"""The run of a bulk handler for a batch: one call for all deliveries, and smaller ones until a culprit is alone."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from bridge.errors import AlreadySettled
from bridge.formats.delivery import Batch, Delivery
from tasks import logs
from tasks.declaration.bulk_messages import BulkCall
from tasks.declaration.message_task import MessageTask
from tasks.errors import RetryAsked, RetryLater
from tasks.execution import delivery_log
from tasks.execution.batch_progress import BatchState
from tasks.execution.batch_telemetry import BatchTelemetry
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.delivery_admission import begin_anew
from tasks.execution.handler_attempt import AttemptEnd, FailureJudge, HandlerAttempts
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import follows_loss
from tasks.logs import set_logged_delivery
from tasks.policy.bulk_outcome import BulkOutcome, asks_for_all, concerns_all, read_bulk_outcome
from tasks.policy.failure_decision import FailureDecision, RetryDelivery

# The logger of the batch's run, whose readers need these lines.
logger = logs.harmless_logger("tasks.execution.batch_run")


class DeliverySteps(NamedTuple):
    """The steps of a batch's run for single deliveries, by which its bulk calls end them.

    Attributes:
        check_lease: raises if another worker has the message by now.
        check_halt: raises if the topic is halted.
        prepare: hands a delivery to a function if the handler must run for it, behind those at some offsets in the same
            call; if not, does what else is left of it, or puts it off.
        wait_for_breaker: puts off a delivery whose circuit breaker is open.
        done: settles deliveries whose work is done.
        act: acts on the decision on a failed delivery.
        end_lap: notes how many deliveries ended since a time, and returns when the next ones begin.
    """

    check_lease: Callable[[], None]
    check_halt: Callable[[], None]
    prepare: Callable[[Delivery, Callable[[Delivery], None], Collection[int]], None]
    wait_for_breaker: Callable[[Delivery], None]
    done: Callable[[Iterable[Delivery]], None]
    act: Callable[[Delivery, BaseException, FailureDecision, float, float], None]
    end_lap: Callable[[float, int], float]


class BulkRun:
    """The calls of a bulk handler for one batch.

    Parameters:
        headers: of the message.
        steps: for single deliveries.
    """

    def __init__(
        self,
        task: MessageTask[..., Any],
        batch: Batch,
        headers: dict[str, Any],
        steps: DeliverySteps,
        attempts: HandlerAttempts,
        breaker_guard: BreakerGuard,
        judge: FailureJudge,
        schedule: RetrySchedule,
        state: BatchState,
        telemetry: BatchTelemetry,
    ) -> None:
        self._task, self._batch, self._headers, self._steps = task, batch, headers, steps
        self._attempts, self._breaker_guard, self._judge = attempts, breaker_guard, judge
        self._schedule, self._state, self._telemetry = schedule, state, telemetry
        #: By offset, the errors of deliveries that have failed and end after those before them in their order.
        self._carried: dict[int, BaseException] = {}
        self._result: Any = None

    def run(self, todo: Sequence[Delivery]) -> Any:
        """Run the handler on all deliveries, on each by itself after a lost process, and return its last result."""
        now = time.monotonic()
        until = now + self._task.batch_seconds
        has_ended, number = False, 0
        parts = [[delivery] for delivery in todo] if follows_loss(self._headers) else [list(todo)]
        while parts:
            # Not before a delivery has ended: a message that goes back as it came would be split again without end.
            if has_ended and now > until:
                self._schedule.put_back([delivery for part in parts for delivery in part])
                break
            part = parts.pop(0)
            number += 1
            if not has_ended and len(part) > 1 and number > 1 + len(todo).bit_length():
                # So many are enough to find a culprit by halves. In an order, what is blamed may end call by call.
                parts.insert(0, part[1:])
                part = part[:1]
            self._steps.check_lease()
            self._steps.check_halt()
            again = self._run_part(part)
            parts[:0] = again
            ended = len(part) - sum(map(len, again))
            has_ended = has_ended or bool(ended)
            now = self._steps.end_lap(now, ended)
        return self._result

    def _run_part(self, part: Sequence[Delivery]) -> list[list[Delivery]]:
        """Call the handler for the deliveries that are ready, and return the parts that run after this one."""
        ready = self._find_ready(part)
        if not ready:
            return []
        if not self._breaker_guard.admits():
            for delivery in ready:
                if not self._schedule.is_held_back(delivery):
                    self._steps.wait_for_breaker(delivery)
            return []
        again = self._call([self._begin(delivery) for delivery in ready])
        return [[ready[place] for place in places] for places in again]

    def _find_ready(self, part: Sequence[Delivery]) -> list[Delivery]:
        """Return the deliveries for which the handler must run; do what else is left of the others, or put them off."""
        ready: list[Delivery] = []
        ahead: set[int] = set()

        def take(delivery: Delivery) -> None:
            ready.append(self._breaker_guard.report_overrun(delivery, self._headers))
            ahead.add(delivery.message.offset)

        for delivery in part:
            self._state.note_start(delivery)
            self._steps.prepare(delivery, take, ahead)
        return ready

    def _begin(self, delivery: Delivery) -> Delivery:
        """Return a delivery as it goes into a call, without anything of a call before."""
        delivery = begin_anew(self._breaker_guard.forgive(delivery))
        if delivery.message.outbox is not None:
            delivery = replace(delivery, message=replace(delivery.message))
        return delivery

    def _call(self, ready: list[Delivery]) -> Sequence[Sequence[int]]:
        """Call the handler once, end what that has ended, and return the places of the parts that run again."""
        alone = len(ready) == 1
        set_logged_delivery(ready[0] if alone else None)
        self._state.note_only_running(ready[0] if alone else None)
        carried = {place: self._carried[at] for place, at in enumerate(map(_offset, ready)) if at in self._carried}
        call = BulkCall([delivery.message for delivery in ready], carried)
        ended = self._attempts.run_bulk(call, ready)
        decision = self._decide_on_all(ready, call, ended)
        outcome = read_bulk_outcome(
            len(ready),
            ended.error,
            set_aside=call.set_aside,
            blamed=call.blamed,
            committed=call.committed,
            of_all=decision is not None,
            ordered=self._batch.order is not None,
        )
        self._note(ready, call, ended, outcome)
        if call.committed:
            logger.info("%s: the work of %d messages is committed already.", str(self._batch), len(call.committed))
        self._carried.update({ready[place].message.offset: error for place, error in outcome.carried.items()})
        self._end(ready, outcome, ended, decision)
        return outcome.again

    def _decide_on_all(self, ready: Sequence[Delivery], call: BulkCall, ended: AttemptEnd) -> FailureDecision | None:
        """Return the decision on the first delivery of a failed call, if the error is about all; else `None`.

        Its circuit breaker hears of the call by that, as of one failure.
        """
        error, blamed = ended.error, call.blamed
        if error is None or isinstance(error, AlreadySettled) or len(call.given) < 2:
            return None
        told = {*call.set_aside, *blamed}
        first = next((delivery for place, delivery in enumerate(ready) if place not in told), None)
        if first is None or (blamed and not asks_for_all(error)):
            return None
        decision = self._judge.decide(first, error, time.time(), self._breaker_guard)
        return decision if concerns_all(error, decision) else None

    def _note(self, ready: Sequence[Delivery], call: BulkCall, ended: AttemptEnd, outcome: BulkOutcome) -> None:
        """Count the runs that have ended, each with its share of the call's time, and note the success of a call."""
        count = len(outcome.done) + len(outcome.failed)
        for number in range(count):
            self._telemetry.count_run(ended.seconds / count, succeeded=number < len(outcome.done))
        if ended.error is None:
            self._result = ended.returned
            # Of a call that returns, but blames all its messages, the breaker hears by them.
            if outcome.done:
                self._breaker_guard.note_success()
        elif outcome.again and not (call.blamed or call.committed):
            delivery_log.log_bulk_split(self._task.name, ready[0].identity, len(ready), ended.error)

    def _end(
        self,
        ready: Sequence[Delivery],
        outcome: BulkOutcome,
        ended: AttemptEnd,
        decision: FailureDecision | None,
    ) -> None:
        """End the deliveries that the call has ended.

        First those that are done, and behind no failed one in their order: they are done, whatever stops the others.

        Parameters:
            ended: the end of the call.
            decision: on the first delivery that failed with it, if it is about all.
        """
        # What the handler asks for depends on a delivery's age; an open circuit breaker is asked once a call.
        of_all = ended.error
        is_shared = isinstance(decision, RetryDelivery) and not isinstance(of_all, RetryLater | RetryAsked)
        shared = decision if is_shared else None
        behind = find_behind(ready, outcome.failed, self._batch.order)
        self._finish(ready, [place for place in outcome.done if place not in behind])
        places = [*outcome.failed, *behind.intersection(outcome.done)]
        runs = groupby(places if self._batch.order is None else sorted(places), outcome.failed.__contains__)
        for has_failed, run in runs:
            if not has_failed:
                self._finish(ready, run)
                continue
            self._steps.check_lease()
            for place in run:
                delivery, error, now = ready[place], outcome.failed[place], time.time()
                if self._schedule.is_held_back(delivery):
                    continue
                set_logged_delivery(delivery)
                found = shared if error is of_all else None
                decided = found or self._judge.decide(delivery, error, now, self._breaker_guard)
                self._steps.act(delivery, error, decided, now, ended.seconds)

    def _finish(self, ready: Sequence[Delivery], places: Iterable[int]) -> None:
        # One after another: the messages of one that Kafka refuses hold back those behind it.
        self._steps.done(ready[place] for place in places if not self._schedule.is_held_back(ready[place]))


def find_behind(deliveries: Sequence[Delivery], failed: Collection[int], order: str | None) -> set[int]:
    """Return the places of the deliveries that are behind a failed one in their order (pure).

    Parameters:
        failed: the places of those that have failed.
    """
    lanes: set[bytes | None] = set()
    behind: set[int] = set()
    for place, delivery in enumerate(deliveries):
        key = delivery.message.key
        if order is None or (order == "key" and key is None):
            continue
        lane = key if order == "key" else None
        if lane in lanes:
            behind.add(place)
        if place in failed:
            lanes.add(lane)
    return behind


def _offset(delivery: Delivery) -> int:
    return delivery.message.offset
