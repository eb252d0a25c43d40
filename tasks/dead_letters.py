"""The dead letters of one run of a batch: written while it runs, and tried again later while Kafka takes none."""

import time
from dataclasses import replace

from bridge.errors import PublishFailed
from bridge.records.failure import cut
from bridge.records.message import ERROR_LENGTH, Batch, Dead, Delivery
from tasks import metrics, telling
from tasks.attempt_outcomes import attempt_outcomes
from tasks.ends import Ends
from tasks.resending import publish_delay
from tasks.settling import Settling
from tasks.standing import Standing
from tasks.waiting import Waiting


class DeadLetters:
    """Those of one batch.

    Parameters:
        waiting: where a delivery waits whose letter Kafka did not take.
    """

    def __init__(self, batch: Batch, settling: Settling, standing: Standing, waiting: Waiting) -> None:
        self._group, self._settling, self._standing, self._waiting = batch.group, settling, standing, waiting
        self._alone = len(batch.deliveries) == 1
        self._first: Dead | None = None
        self._seconds = 0.0

    def write(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Write a delivery's; as long as Kafka cannot take it, later again.

        Raises:
            LedgerUnavailable: it is written, and the ledger did not take the mark.
        """
        since = time.monotonic()
        try:
            self._settling.dead(delivery, dead, cause)
        except PublishFailed as error:
            self._later(delivery, dead, error, cause)
            return
        finally:
            self._seconds += time.monotonic() - since
        if delivery.publish_tries:
            attempt_outcomes.written(self._settling.ledger, delivery.handler, delivery.identity)
        self._standing.ends.add("dead", delivery.message.offset)
        self._standing.ended(delivery)
        self._first = self._first or dead

    def took(self) -> float:
        """Seconds for which Kafka took those that were written since this was last asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def epitaph(self, ends: Ends) -> str | None:
        """What a task says of them that has any."""
        first = self._first
        if first is None:
            return None
        if self._alone:
            return f"{first.reason}: {first.failure}"
        words = cut(str(first.failure), ERROR_LENGTH)
        return f"{ends.counts}; the first of the dead: {first.reason}: {words}; {ends.names}"

    def _later(self, delivery: Delivery, dead: Dead, error: PublishFailed, cause: BaseException | None) -> None:
        delay = publish_delay(delivery.publish_tries)
        metrics.retried(delivery.handler, self._group, "dead_letter_unpublished")
        attempt_outcomes.refused(self._settling.ledger, delivery.handler, delivery.identity, str(error)[:300])
        telling.unpublished(delivery, dead, delay, error, cause)
        waiting = replace(delivery, dead=dead, publish_tries=delivery.publish_tries + 1)
        self._waiting.again(waiting, delay, str(dead.failure))
