"""The actions on the outcomes of a batch's attempts: mark and publish, retry later, dead-letter, halt the topic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.errors import LedgerUnavailable, NeverPublished
from bridge.formats.delivery import Batch, Dead, Delivery
from bridge.formats.failure import Failure
from tasks.declaration.message_task import MessageTask
from tasks.errors import RegistryDown, TopicHalted
from tasks.execution.batch_progress import BatchState
from tasks.execution.batch_telemetry import BatchTelemetry
from tasks.execution.breaker_guard import BREAKER_PAUSE, REFUSED_PAUSE
from tasks.execution.dead_letter_writer import DeadLetterWriter
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.handler_attempt import find_cause
from tasks.execution.outgoing_publication import OutgoingPublication, UnsentMessages, make_sequence_step
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import Settlement
from tasks.execution.unique_guard import UniqueGuard
from tasks.policy.failure_decision import (
    PERMANENT,
    DeadLetterDelivery,
    DropDelivery,
    FailureDecision,
    HaltTopic,
    RetryDelivery,
)


@dataclass(eq=False)
class OutcomeActions:
    """The actions on the outcomes of one batch's attempts, each delivery's by itself."""

    task: MessageTask[..., Any]
    batch: Batch
    settlement: Settlement
    state: BatchState
    schedule: RetrySchedule
    dead_letters: DeadLetterWriter
    publication: OutgoingPublication
    halt_guard: HaltGuard
    unique_guard: UniqueGuard
    telemetry: BatchTelemetry

    def finish(self, delivery: Delivery) -> None:
        """Settle a delivery whose handler has succeeded, once the messages that it sends are published."""
        unsent = self.publication.take(delivery, make_sequence_step(self.task.app, self.batch, delivery))
        if unsent is None:
            self._settle([delivery])
        else:
            self._keep(unsent)

    def finish_together(self, deliveries: Iterable[Delivery]) -> None:
        """Settle deliveries whose handler has succeeded in one call, as `finish` does.

        Raises:
            LedgerUnavailable: the ledger did not take a mark; all of them have ended, and none runs again.
        """
        settled = []
        untold: LedgerUnavailable | None = None
        for delivery in deliveries:
            unsent = self.publication.take(delivery, make_sequence_step(self.task.app, self.batch, delivery))
            if unsent is None:
                settled.append(delivery)
                self.state.note_success(delivery)
                continue
            try:
                self._keep(unsent)
            except LedgerUnavailable as error:
                untold = error
                self.settlement.give_up_ledger()
        if settled:
            self.settlement.done_all(settled)
        if untold is not None:
            raise untold
        for delivery in settled:
            self.state.finish(delivery)

    def publish(self) -> None:
        """Publish the messages of all handlers so far; those that Kafka refuses are retried.

        Raises:
            LedgerUnavailable: the ledger did not take a mark; what Kafka has is not published again.
        """
        answers = self.publication.publish()
        # First, and together: one mark that the ledger does not take would leave the others to be published again.
        if settled := [unsent.delivery for unsent, failed in answers if failed is None]:
            self._settle(settled)
        for unsent, failed in answers:
            if failed is None:
                continue
            if isinstance(failed, NeverPublished):
                failure = Failure.from_error(failed, traceback=False)
                dead = Dead(PERMANENT, failure, self.task.version)
                self.unique_guard.release(unsent.delivery)
                self.dead_letters.write(unsent.delivery.failed(failure, spent=True), dead, failed)
            else:
                self.unique_guard.keep(unsent.delivery)
                self.schedule.retry_publication(unsent, failed)

    def act(
        self,
        delivery: Delivery,
        error: BaseException,
        decision: FailureDecision,
        now: float,
        seconds: float | None = None,
    ) -> None:
        """Act on the decision on a failed delivery.

        Parameters:
            seconds: how long its handler ran; `None`: it did not.

        Raises:
            TopicHalted: the decision is to halt the topic.
        """
        cause = find_cause(error)
        failure = Failure.from_error(cause, now, traceback=isinstance(decision, DeadLetterDelivery))
        if not isinstance(decision, DropDelivery):
            self.unique_guard.release(delivery)
        match decision:
            case DropDelivery():
                self.finish(delivery)
            case RetryDelivery(delay, spent):
                is_registry = isinstance(cause, RegistryDown)
                if spent or is_registry:
                    self.telemetry.note_failure(str(failure))
                self.telemetry.count_retry("failed" if spent else "registry" if is_registry else "postponed")
                self.schedule.put_off(self._fail(delivery, failure, seconds, spent=spent), delay, str(failure), failure)
            case HaltTopic():
                self.telemetry.count_retry("halted")
                self.state.update(self._fail(delivery, failure, seconds, spent=False))
                self.halt_guard.stop(delivery, failure, cause)
                raise TopicHalted(f"topic {self.batch.topic!r} was halted by this delivery: {failure}", first=True)
            case DeadLetterDelivery(reason, why):
                self.telemetry.note_failure(str(failure))
                dead = Dead(reason, failure.with_why(why), self.task.version)
                self.dead_letters.write(self._fail(delivery, dead.failure, seconds), dead, cause)

    def _fail(self, delivery: Delivery, failure: Failure, seconds: float | None, *, spent: bool = True) -> Delivery:
        """Return a delivery after one more run, with where and how long it ran."""
        worker = str(self.task.request.hostname or "")
        return delivery.failed(failure, spent=spent, seconds=seconds, worker=worker, version=self.task.version)

    def wait_for_breaker(self, delivery: Delivery) -> None:
        """Put off a delivery whose circuit breaker is open."""
        self.unique_guard.release(delivery)
        self.telemetry.count_retry("postponed")
        has_failed = delivery.attempts.failed or delivery.attempts.postponed
        pause = BREAKER_PAUSE if has_failed else REFUSED_PAUSE
        self.schedule.retry_in_celery(delivery, pause, "its circuit breaker is open")

    def wait_for_name(self, delivery: Delivery, record: str) -> None:
        """Put off a delivery while the record that has its unique name runs."""
        self.telemetry.count_retry("postponed")
        self.schedule.wait_for_name(delivery, record)

    def wait_for_limit(self, delivery: Delivery, wait: float, takes: float) -> None:
        """Put off a delivery until its turn in the limit of its handler.

        Parameters:
            takes: seconds that a run takes.
        """
        self.unique_guard.release(delivery)
        self.telemetry.count_retry("limited")
        self.schedule.wait_for_limit(delivery, wait, takes)

    def _keep(self, unsent: UnsentMessages) -> None:
        """Keep the messages of a delivery for their publication."""
        # Whatever happens from now on, only the messages are sent again; the handler does not run again.
        self.state.update(unsent.again)
        if self.batch.order is not None:
            # The messages of the next delivery in its order must not be sent before these.
            self.publish()

    def _settle(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            is_duplicate = delivery.message.offset in self.unique_guard.duplicates
            self.state.note_success(delivery, "duplicate" if is_duplicate else "done")
        self.settlement.done_all(deliveries)
        for delivery in deliveries:
            self.state.finish(delivery)
