"""The settlement of a delivery: publish, wait for Kafka's acknowledgement, mark the ledger; the Celery message is
acknowledged last. A crash between two of the steps repeats one, and never skips one.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from celery import Celery, Task, signals
from celery.app.task import get_actual_ignore_result  # type: ignore[attr-defined]
from celery.backends.base import DisabledBackend

from bridge.errors import LedgerUnavailable, PublishFailed
from bridge.formats.delivery import Batch, Dead, Delivery
from bridge.formats.retry_record import RetryRecordPosition
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.ledger import Fate, Ledger
from bridge.ledger.unsettled_retry_records import find_records_to_run
from lossless.transport.script_hook import LOOKED
from lossless.worker.acknowledgement_bundle import can_bundle
from tasks.execution import delivery_log
from tasks.execution.batch_fates import BatchFates
from tasks.execution.execution_settings import read_execution_settings
from tasks.worker import worker_metrics
from tasks.worker.ledger_telemetry import delivery_counts

#: The word for a delivery's end that travels with it until the ledger has the mark.
END_WORDS: Final = {Fate.DONE: "done", Fate.DEAD: "dead", Fate.PARKED: "parked"}
#: The shortest seconds before a record that Kafka did not acknowledge is tried again; many are read together.
TRIED_BEFORE: Final = 2.0


def follows_loss(headers: Mapping[str, Any]) -> bool:
    """Return whether a process or a whole worker died with the Celery message that has these headers."""
    # lossless.worker.request and lossless.worker.consumer set them.
    return bool(headers.get("lost") or headers.get("restored"))


class Settlement:
    """The settlement of one Celery message's deliveries, each by itself.

    Parameters:
        fates: those of the batch, in the ledger.
        is_redelivered: whether an earlier run of the message may have published to Kafka and stopped there.
        at_once: whether a done delivery is marked before the next runs, or within milliseconds, with others.
        looked: whether the script hook may have read its fate when the message was taken.
        bundled: whether the mark "done" may be bundled with the acknowledgement of the message.
    """

    def __init__(
        self,
        app: Celery,
        batch: Batch,
        fates: BatchFates,
        *,
        is_redelivered: bool,
        at_once: bool,
        looked: bool = False,
        bundled: bool = False,
    ) -> None:
        self._app, self._batch, self._fates = app, batch, fates
        self._is_redelivered, self._at_once, self._looked, self._bundled = is_redelivered, at_once, looked, bundled
        self._ended: set[int] = set()
        # An earlier run, perhaps in a message that is gone by now, may have published to Kafka.
        self._tried = {
            delivery.message.offset for delivery in batch.deliveries if delivery.publish_tries or delivery.attempts.lost
        }

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of its deliveries."""
        return self._fates.ledger

    @classmethod
    def for_batch(cls, task: Task, batch: Batch, fates: BatchFates) -> "Settlement":  # type: ignore[type-arg]
        """Return the settlement of a task's current message."""
        request = task.request
        headers = request.headers or {}
        lost = follows_loss(headers)
        # A delivery from a retry topic has two fates, which the script hook does not read.
        alone = len(batch.deliveries) == 1
        again = lost or bool(headers.get("redelivered"))
        # Under threads and solo a duplicate may have ended before this message runs, unnoticed here.
        looked = alone and batch.via is None and not again and can_bundle() and LOOKED in (request.properties or {})
        bundled = looked and not keeps_success(task, request) and not is_followed(task)
        return cls(task.app, batch, fates, is_redelivered=again, at_once=alone or lost, looked=looked, bundled=bundled)

    def done(self, delivery: Delivery) -> None:
        """Mark a delivery whose handler's work is committed; a single one together with the acknowledgement.

        Raises:
            LedgerUnavailable: the ledger did not take the mark; it stays in `find_unconfirmed`.
        """
        offset = delivery.message.offset
        is_bundled = self._bundled and self._fates.bundle_done(offset)
        # First: until the ledger has the mark, it travels with the message.
        self._ended.add(offset)
        if not is_bundled:
            self._fates.done(offset, now=self._at_once)

    def done_all(self, deliveries: Sequence[Delivery]) -> None:
        """Mark deliveries whose handler's work is committed, in one step.

        Raises:
            LedgerUnavailable: as `done`.
        """
        if len(deliveries) == 1:
            self.done(deliveries[0])
            return
        offsets = [delivery.message.offset for delivery in deliveries]
        # First: until the ledger has the marks, they travel with the message.
        self._ended.update(offsets)
        self._fates.mark_all(offsets, Fate.DONE)

    def give_up_ledger(self) -> None:
        """Wait no more for a ledger that did not answer."""
        self._fates.give_up_ledger()

    def is_new(self, delivery: Delivery, properties: Mapping[str, Any] | None) -> bool:
        """Return whether a message's only delivery is known to be unsettled, without asking the ledger.

        Parameters:
            properties: of the message.
        """
        return self._looked and self._fates.open_when_taken(delivery.message.offset, properties or {})

    def dead(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Write a dead letter, wait until Kafka has acknowledged it, and mark the delivery.

        A delivery that a person has discarded while it ran gets none: it ends as discarded.

        Parameters:
            cause: what its handler raised, for the log.

        Raises:
            PublishFailed: Kafka did not acknowledge it; it may or may not be there, and the next run checks.
            LedgerUnavailable: as `done`.
        """
        group = self._batch.group
        publisher = Publisher.get_publisher(self._app)
        if not self._is_written(publisher, delivery):
            if self._fates.is_discarded(delivery.message.offset):
                self._ended.add(delivery.message.offset)
                delivery_log.log_failed_discarded(delivery, dead)
                return
            publisher.dead_letter(delivery, dead, group)
        self._mark(delivery, Fate.DEAD)
        worker_metrics.count_dead_letter(delivery.handler, group, dead.reason)
        delivery_counts.add(self._fates.ledger, self._batch.topic, delivery.handler, "dead")
        delivery_log.log_dead(delivery, dead, cause)

    def park(self, clones: Sequence[ParkRequest], delays: Sequence[int]) -> list[PublishFailed | None]:
        """Write deliveries to their retry topics, wait until Kafka has acknowledged, and mark them parked.

        Parameters:
            delays: of the retry topics in which an earlier run may have parked them.

        Returns:
            for each delivery why Kafka did not take it, or `None`: it is parked.

        Raises:
            LedgerUnavailable: as `done`.
        """
        publisher = Publisher.get_publisher(self._app)
        try:
            there = self._were_parked(publisher, [clone.delivery for clone in clones], delays)
        except PublishFailed as error:
            return [error] * len(clones)
        new = [clone for clone, is_there in zip(clones, there, strict=True) if not is_there]
        written = iter(publisher.park(new, self._batch.group) if new else [])
        failures = [None if is_there else next(written) for is_there in there]
        parked = [clone for clone, failed in zip(clones, failures, strict=True) if failed is None]
        if parked:
            offsets = [clone.delivery.message.offset for clone in parked]
            # First: until the ledger has the marks, they travel with the message.
            self._ended.update(offsets)
            self._fates.mark_all(offsets, Fate.PARKED)
        return failures

    def _were_parked(self, publisher: Publisher, deliveries: Sequence[Delivery], delays: Sequence[int]) -> list[bool]:
        """Return for each delivery whether an earlier run has parked it and it is still to come from there."""
        lying = self._parked_in(publisher, deliveries, delays)
        try:
            coming = find_records_to_run(self._fates.ledger, [record for records in lying for record in records])
        except LedgerUnavailable as error:
            raise PublishFailed(f"unknown whether it is parked already: {error}") from None
        # A record parked before the delivery was replayed has had its run, and does not come again.
        return [any(record in coming for record in records) for records in lying]

    def _parked_in(
        self, publisher: Publisher, deliveries: Sequence[Delivery], delays: Sequence[int]
    ) -> Sequence[Sequence[RetryRecordPosition]]:
        """Return for each delivery the retry records that an earlier run may have written, read in one pass."""
        group = self._batch.group
        if self._is_redelivered:
            return publisher.parked_in(deliveries, delays, group)
        if any(delivery.message.offset in self._tried for delivery in deliveries):
            return publisher.parked_in(deliveries, delays, group, time.time() - TRIED_BEFORE)
        wiped_at = [self._fates.find_wipe(delivery.message) for delivery in deliveries]
        if (latest := max((at for at in wiped_at if at is not None), default=None)) is None:
            return [()] * len(deliveries)
        found = publisher.parked_in(deliveries, delays, group, latest)
        return [() if at is None else records for records, at in zip(found, wiped_at, strict=True)]

    def mark_earlier_end(self, delivery: Delivery) -> None:
        """Mark the end of a delivery in an earlier run, which could not reach the ledger (`delivery.ended`).

        Raises:
            LedgerUnavailable: as `done`.
        """
        self._mark(delivery, next(fate for fate, name in END_WORDS.items() if name == delivery.ended))

    def note_carrier(self, task_id: str | None) -> None:
        """Note which task carried the ended deliveries (for `bridge find`)."""
        ended = self._ended - self._fates.unwritten.keys()
        deliveries = self._batch.deliveries
        # The task of a parked delivery has another id than the delivery.
        if len(deliveries) == 1 and task_id == deliveries[0].identity:
            for offset in ended:
                self._fates.note_single_task(offset)
        elif task_id:
            # The last delivery left of a redelivered batch keeps the batch's id.
            self._fates.note_task(task_id, sorted(ended))

    def find_unconfirmed(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Return the deliveries that have not ended, and with their end those whose end the ledger does not know."""
        unwritten = self._fates.unwritten
        return [
            replace(delivery, ended=END_WORDS[unwritten[offset]]) if offset in self._ended else delivery
            for delivery in deliveries
            if (offset := delivery.message.offset) not in self._ended or offset in unwritten
        ]

    def _is_written(self, publisher: Publisher, delivery: Delivery) -> bool:
        """Return whether an earlier run has written a delivery's dead letter to Kafka."""
        group = self._batch.group
        # Its process may have been killed between Kafka's acknowledgement and the mark, or the mark is lost.
        wiped_at = self._fates.find_wipe(delivery.message)
        if self._is_redelivered and publisher.has_dead_letter(delivery, group):
            return True
        if delivery.message.offset in self._tried:
            return publisher.has_dead_letter(delivery, group, time.time() - TRIED_BEFORE)
        return wiped_at is not None and publisher.has_dead_letter(delivery, group, wiped_at)

    def _mark(self, delivery: Delivery, fate: Fate) -> None:
        # First: until the ledger has the mark, it travels with the message.
        self._ended.add(delivery.message.offset)
        if fate is Fate.DONE:
            self._fates.done(delivery.message.offset, now=self._at_once)
        else:
            self._fates.mark(delivery.message.offset, fate)


#: Modules whose signal receivers are quick: Celery's own (they close Django's connections) and this project's.
_QUICK: Final = ("celery.", "tasks.", "lossless.", "bridge.")


def keeps_success(task: Any, request: Any) -> bool:
    """Return whether Celery stores the success of the running task somewhere besides the ledger.

    Celery acknowledges a task whose result backend has a success, even if its process died before it reported one
    (celery/worker/request.py `_success_was_stored`), and does not run it again if it deduplicates.
    """
    if read_execution_settings(task.app).deduplicates:
        return True
    ignored = get_actual_ignore_result(task, request)
    return not ignored and not isinstance(task.backend, DisabledBackend)


def is_followed(task: Any) -> bool:
    """Return whether foreign code runs after the task's body: its hooks, receivers of signals."""
    if _has_hooks(task.__class__):
        return True
    sent: tuple[Any, ...] = (signals.task_success, signals.task_postrun)
    return any(
        not str(getattr(receiver, "__module__", "")).startswith(_QUICK)
        for signal in sent
        if signal.receivers
        for receiver in signal._live_receivers(task)
    )


def _has_hooks(kind: type[Any]) -> bool:
    return kind.on_success is not Task.on_success or kind.after_return is not Task.after_return
