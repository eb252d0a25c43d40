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
from bridge.ledger.retry_records import find_records_to_run
from lossless.transport.script_hook import LOOKED
from lossless.worker.acknowledgement_bundle import can_bundle
from tasks.execution import delivery_log
from tasks.execution.batch_fates import BatchFates
from tasks.worker import worker_metrics
from tasks.worker.ledger_telemetry import delivery_counts

#: How a delivery has ended, in the word that travels with it until the ledger has the mark.
END_WORDS: Final = {Fate.DONE: "done", Fate.DEAD: "dead", Fate.PARKED: "parked"}
#: Headers of a message that was in a worker's hands before (lossless.worker.request, lossless.worker.consumer).
_AFTER_A_LOSS: Final = ("lost", "restored")
#: Seconds after which, at the earliest, is tried again what Kafka did not acknowledge; many look together.
TRIED_BEFORE: Final = 2.0


def follows_loss(headers: Mapping[str, Any]) -> bool:
    """Whether a process or a whole worker died with the Celery message that has these headers."""
    return any(headers.get(name) for name in _AFTER_A_LOSS)


class Settlement:
    """Settles the deliveries of one Celery message, each by itself.

    Parameters:
        fates: the fates of the batch.
        is_redelivered: whether an earlier run of the message may have come as far as Kafka, and no further.
        at_once: whether what is done is marked before the next is run, or within milliseconds, with others.
        looked: whether it may have been looked at as it was taken.
        along: whether a mark of what is done may go along with the acknowledgement of the message.
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
        # An earlier run, perhaps in a message that is gone by now, may have come as far as Kafka.
        self._tried = {each.message.offset for each in batch.deliveries if each.publish_tries or each.attempts.lost}

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of its deliveries."""
        return self._fates.ledger

    @classmethod
    def of(cls, task: Task, batch: Batch, fates: BatchFates) -> "Settlement":  # type: ignore[type-arg]
        """Of the message that a task has in hand."""
        headers = task.request.headers or {}
        lost = follows_loss(headers)
        # What came by a retry topic has two fates, of which the taking looks at none.
        alone = len(batch.deliveries) == 1
        again = lost or bool(headers.get("redelivered"))
        # Under threads and solo what was taken at once may have ended before it runs, and nobody would know here.
        looked = (
            alone and batch.via is None and not again and can_bundle() and LOOKED in (task.request.properties or {})
        )
        bundled = looked and not keeps_success(task) and not is_followed(task)
        return cls(task.app, batch, fates, is_redelivered=again, at_once=alone or lost, looked=looked, bundled=bundled)

    def done(self, delivery: Delivery) -> None:
        """Mark a delivery whose handler's work is committed: the only one of its message as that is acknowledged.

        Raises:
            LedgerUnavailable: the ledger did not take the mark; it stays in `find_unsettled`.
        """
        if self._bundled and self._fates.bundle_done(delivery.message.offset):
            self._ended.add(delivery.message.offset)
        else:
            self._mark(delivery, Fate.DONE)

    def is_new(self, delivery: Delivery, properties: Mapping[str, Any] | None) -> bool:
        """Whether the only delivery of a message that comes for the first time was not settled when it was taken.

        Parameters:
            properties: of the message.
        """
        return self._looked and self._fates.open_when_taken(delivery.message.offset, properties or {})

    def dead(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Write a dead letter, wait until Kafka has acknowledged it, and mark the delivery.

        Parameters:
            cause: what its handler raised, for the log.

        Raises:
            PublishFailed: Kafka did not acknowledge it; it may or may not be there, and the next run looks.
            LedgerUnavailable: as `done`.
        """
        group = self._batch.group
        publisher = Publisher.of(self._app)
        if not self._is_written(publisher, delivery):
            publisher.dead_letter(delivery, dead, group)
        self._mark(delivery, Fate.DEAD)
        worker_metrics.count_dead_letter(delivery.handler, group, dead.reason)
        delivery_counts.add(self._fates.ledger, self._batch.topic, delivery.handler, "dead")
        delivery_log.log_dead(delivery, dead, cause)

    def park(self, clones: Sequence[ParkRequest], delays: Sequence[int]) -> list[PublishFailed | None]:
        """Write deliveries to their retry topics, wait until Kafka has acknowledged, and mark them parked.

        Parameters:
            delays: of the retry topics in which they may lie from an earlier run.

        Returns:
            for each why Kafka did not take it, or `None`: it is parked.

        Raises:
            LedgerUnavailable: as `done`.
        """
        publisher = Publisher.of(self._app)
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
            # First of all: until the ledger has taken the marks, they travel with the message.
            self._ended.update(offsets)
            self._fates.mark_all(offsets, Fate.PARKED)
        return failures

    def _were_parked(self, publisher: Publisher, deliveries: Sequence[Delivery], delays: Sequence[int]) -> list[bool]:
        """Of each whether it lies in a retry topic from an earlier run, and is yet to come from there."""
        lying = self._parked_in(publisher, deliveries, delays)
        try:
            coming = find_records_to_run(self._fates.ledger, [record for records in lying for record in records])
        except LedgerUnavailable as error:
            raise PublishFailed(f"whether it is parked already is not known: {error}") from None
        # What a delivery that began anew was parked as before has had its run, and does not come again.
        return [any(record in coming for record in records) for records in lying]

    def _parked_in(
        self, publisher: Publisher, deliveries: Sequence[Delivery], delays: Sequence[int]
    ) -> Sequence[Sequence[RetryRecordPosition]]:
        """Where an earlier run may have parked each; as for dead letters, and read at once."""
        group = self._batch.group
        if self._is_redelivered:
            return publisher.parked_in(deliveries, delays, group)
        if any(delivery.message.offset in self._tried for delivery in deliveries):
            return publisher.parked_in(deliveries, delays, group, time.time() - TRIED_BEFORE)
        forgot_at = [self._fates.forgot_at(delivery.message) for delivery in deliveries]
        if (latest := max((at for at in forgot_at if at is not None), default=None)) is None:
            return [()] * len(deliveries)
        found = publisher.parked_in(deliveries, delays, group, latest)
        return [() if at is None else records for records, at in zip(found, forgot_at, strict=True)]

    def ended_before(self, delivery: Delivery) -> None:
        """Mark a delivery as it ended in an earlier run, which could not tell the ledger (`delivery.ended`).

        Raises:
            LedgerUnavailable: as `done`.
        """
        self._mark(delivery, next(fate for fate, name in END_WORDS.items() if name == delivery.ended))

    def note_carrier(self, task_id: str | None) -> None:
        """Note which task carried what has ended (`bridge find`)."""
        ended = self._ended - self._fates.unwritten.keys()
        deliveries = self._batch.deliveries
        # What was parked has a task of another name than its delivery's.
        if len(deliveries) == 1 and task_id == deliveries[0].identity:
            for offset in ended:
                self._fates.carried_alone(offset)
        elif task_id:
            # The last one left of a batch that came again goes on under the batch's id.
            self._fates.carried(task_id, sorted(ended))

    def find_unsettled(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Those that have not ended, and those that have, with how, as far as the ledger has not been told."""
        unwritten = self._fates.unwritten
        return [
            replace(delivery, ended=END_WORDS[unwritten[offset]]) if offset in self._ended else delivery
            for delivery in deliveries
            if (offset := delivery.message.offset) not in self._ended or offset in unwritten
        ]

    def _is_written(self, publisher: Publisher, delivery: Delivery) -> bool:
        """Whether its dead letter lies in Kafka from an earlier run."""
        group = self._batch.group
        # Who ran it may have been killed between the acknowledgement and the mark, or the mark is lost.
        forgot_at = self._fates.forgot_at(delivery.message)
        if self._is_redelivered and publisher.has_dead_letter(delivery, group):
            return True
        if delivery.message.offset in self._tried:
            return publisher.has_dead_letter(delivery, group, time.time() - TRIED_BEFORE)
        return forgot_at is not None and publisher.has_dead_letter(delivery, group, forgot_at)

    def _mark(self, delivery: Delivery, fate: Fate) -> None:
        # First of all: until the ledger has taken the mark, it travels with the message.
        self._ended.add(delivery.message.offset)
        if fate is Fate.DONE:
            self._fates.done(delivery.message.offset, now=self._at_once)
        else:
            self._fates.mark(delivery.message.offset, fate)


#: Whose receivers of signals take no time: Celery's own (Django's connections are closed), and this project's.
_QUICK: Final = ("celery.", "tasks.", "lossless.", "bridge.")


def keeps_success(task: Any) -> bool:
    """Whether a success of the task that runs now is known to others than its ledger.

    Celery acknowledges what its result backend calls a success, also where the process that ran it died with its last
    word (celery/worker/request.py `_success_was_stored`), and does not run it again where it deduplicates.
    """
    if task.app.conf.worker_deduplicate_successful_tasks:
        return True
    ignored = get_actual_ignore_result(task, task.request)
    return not ignored and not isinstance(task.backend, DisabledBackend)


def is_followed(task: Any) -> bool:
    """Whether code of others runs after the task's body: its hooks, receivers of signals."""
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
    return any(getattr(kind, hook) is not getattr(Task, hook) for hook in ("on_success", "after_return"))
