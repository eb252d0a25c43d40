"""The admission of a batch's deliveries: which are settled already, which wait, and whose handlers run now.
bridge/ledger/duplicate_check.py decides which are skipped.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Batch, Delivery
from tasks.declaration.message_task import MessageTask
from tasks.execution import delivery_log, redis_clock
from tasks.execution.batch_fates import BatchFates
from tasks.execution.batch_progress import BatchState
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.dead_letter_writer import DeadLetterWriter
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.handler_attempt import raise_if_ending
from tasks.execution.limit_guard import NoLimit
from tasks.execution.message_resend import retry_batch
from tasks.execution.outcome_actions import OutcomeActions
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import Settlement
from tasks.execution.unique_guard import UniqueGuard
from tasks.logs import set_logged_delivery
from tasks.worker import worker_metrics

T = TypeVar("T")

#: Seconds before a delivery is tried again while the ledger does not say whether it is settled.
LEDGER_DELAY: Final = 5.0


def find_unsettled(
    task: MessageTask[..., Any], batch: Batch, fates: BatchFates, settlement: Settlement, state: BatchState
) -> list[Delivery]:
    """Return the unsettled deliveries, ordered by offset.

    Raises:
        Retry: the ledger does not answer; the message was sent again.
    """
    deliveries = sorted(batch.deliveries, key=attrgetter("message.offset"))
    predecessors = sorted({delivery.after for delivery in deliveries if delivery.after is not None})
    if not predecessors and settlement.is_new(deliveries[0], task.request.properties):
        return deliveries
    try:
        if predecessors:
            state.finished.update(fates.find_finished(predecessors))
        settled = fates.settled([delivery.message.offset for delivery in deliveries])
        unsettled = [delivery for delivery in deliveries if delivery.message.offset not in settled]
        for delivery in fates.find_holding(deliveries, unsettled):
            state.hold_behind(delivery)
    except LedgerUnavailable as error:
        retry_batch(task, batch, LEDGER_DELAY, str(error), ran=False)
    if not settled:
        return deliveries
    for delivery in deliveries:
        if delivery.message.offset in settled:
            discarded = delivery.message.offset in fates.discarded
            state.remove(delivery, "discarded" if discarded else "skipped")
            worker_metrics.count_skipped(task.name, batch.group)
            delivery_log.log_skipped(delivery, discarded=discarded)
    return state.put_behind(unsettled)


class AdmittedDelivery(NamedTuple):
    """A delivery whose handler may run now, and the breaker's guard that has admitted it."""

    delivery: Delivery
    guard: BreakerGuard


@dataclass(eq=False)
class DeliveryAdmission:
    """The admission of one batch's deliveries.

    Attributes:
        headers: of the batch's message.
        fail: decides on a delivery that failed before its handler ran, and acts.
        end_duplicate: ends a delivery without a run, because another record with its name is done.
        begun: one start time for all deliveries, so that those due together stay together.
    """

    task: MessageTask[..., Any]
    batch: Batch
    headers: dict[str, Any]
    settlement: Settlement
    state: BatchState
    schedule: RetrySchedule
    dead_letters: DeadLetterWriter
    actions: OutcomeActions
    halt_guard: HaltGuard
    unique_guard: UniqueGuard
    limit_guard: NoLimit
    fail: Callable[[Delivery, BaseException, BreakerGuard], None]
    end_duplicate: Callable[[Delivery, str], None]
    begun: float = field(default_factory=time.time)
    _claims: bool = field(init=False)

    def __post_init__(self) -> None:
        self._claims = self.unique_guard.is_used or self.limit_guard.is_used

    def prepare(
        self, delivery: Delivery, admit: Callable[[Delivery], T | None], ahead: Collection[int] = frozenset()
    ) -> T | None:
        """Return what `admit` answers for a delivery whose handler must run now.

        Of another it does what else is left, or puts it off, and returns `None`.

        Parameters:
            ahead: the offsets of deliveries that run in the same call, in front of this one.
        """
        set_logged_delivery(delivery)
        if delivery.ended:
            self._end_again(delivery)
        elif self.schedule.is_held_back(delivery):
            return None
        elif delivery.due is not None and (left := self._seconds_until(delivery.due)) > 0:
            # A delivery that only needs its dead letter or its messages published does not run again: it is not parked.
            has_run = delivery.dead is not None or delivery.outgoing
            wait = self.schedule.retry_in_celery if has_run else self.schedule.put_off
            wait(delivery, left, "it is not due yet")
        elif delivery.after is not None and delivery.after not in self.state.finished and delivery.after not in ahead:
            self.schedule.wait_for_predecessor(delivery)
        elif delivery.dead is not None:
            self.dead_letters.write(delivery, delivery.dead)
        elif delivery.outgoing:
            self.unique_guard.note_success(delivery)
            self.actions.finish(delivery)
        # A call for each message is saved, where nothing is halted.
        elif self.halt_guard.small and (gate := self.halt_guard.find_key_gate(delivery)):
            self.schedule.hold(delivery, gate)
        else:
            return admit(delivery)
        return None

    def admit(self, delivery: Delivery, guard: BreakerGuard) -> AdmittedDelivery | None:
        """Return a delivery whose handler must run, if its circuit breaker admits it; else put it off."""
        if guard.is_used:
            delivery = guard.report_overrun(delivery, self.headers)
        if self._claims and not self._claim(delivery, guard):
            return None
        if guard.is_used:
            if not guard.admits():
                self.limit_guard.give_back(delivery)
                self.actions.wait_for_breaker(delivery)
                return None
            delivery = guard.forgive(delivery)
        return AdmittedDelivery(begin_anew(delivery), guard)

    def _claim(self, delivery: Delivery, guard: BreakerGuard) -> bool:
        """Return whether a delivery may run by its unique name and its shared limit; if not, it is dealt with."""
        is_named = not self.unique_guard.is_used or self._claim_name(delivery, guard)
        return is_named and (not self.limit_guard.is_used or self._claim_start(delivery, guard))

    def _claim_name(self, delivery: Delivery, guard: BreakerGuard) -> bool:
        """Return whether a delivery may run; if not, it waits for another record with its name, or is its duplicate."""
        try:
            claim = self.unique_guard.claim(delivery)
        except LedgerUnavailable as error:
            self.schedule.retry_in_celery(delivery, LEDGER_DELAY, str(error))
            return False
        except BaseException as error:
            # Also a SystemExit of the user's function: the message would be redelivered without end.
            raise_if_ending(error)
            self.fail(delivery, error, guard)
            return False
        if claim.state in ("running", "replayed"):
            self.actions.wait_for_name(delivery, claim.record)
        elif claim.state == "done":
            self.end_duplicate(delivery, claim.record)
        return claim.state == "granted"

    def _claim_start(self, delivery: Delivery, guard: BreakerGuard) -> bool:
        """Return whether a delivery may start now by its shared limit; if not, it waits for its turn."""
        try:
            wait = self.limit_guard.claim(delivery)
        except LedgerUnavailable as error:
            self.unique_guard.release(delivery)
            self.schedule.retry_in_celery(delivery, LEDGER_DELAY, str(error))
            return False
        except BaseException as error:
            raise_if_ending(error)
            self.fail(delivery, error, guard)
            return False
        if wait:
            self.actions.wait_for_limit(delivery, wait, self.limit_guard.takes)
        return not wait

    def _end_again(self, delivery: Delivery) -> None:
        """Mark a delivery that ended in an earlier run, which could not reach the ledger."""
        self.state.ends.add(delivery.ended, delivery.message.offset)
        if delivery.ended == "done":
            self.unique_guard.note_success(delivery)
        self.settlement.mark_earlier_end(delivery)
        if delivery.ended == "dead":
            self.dead_letters.end(delivery)
        elif delivery.ended != "parked":
            self.state.finish(delivery)

    def _seconds_until(self, due: float) -> float:
        """Return the seconds until a time of Redis's clock."""
        return due - (self.begun - redis_clock.measure_clock_lead(self.task.app, self.batch))


def begin_anew(delivery: Delivery) -> Delivery:
    """Return a delivery as its handler runs for it: it has waited for its predecessor and for Kafka."""
    if delivery.after is None and not delivery.publish_tries:
        return delivery
    # An earlier try is remembered: Kafka may have the record without an acknowledgement.
    return replace(delivery, after=None, publish_tries=min(1, delivery.publish_tries))
