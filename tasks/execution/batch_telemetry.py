"""The telemetry of one batch: its figures for metrics, batch sizes and `bridge status`. It decides nothing."""

from collections.abc import Sequence
from typing import Any

from bridge.formats.delivery import Batch, Delivery
from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import CountKind
from tasks.declaration.message_task import MessageTask
from tasks.execution import delivery_log
from tasks.worker import concurrency_meter, delivery_cost, worker_metrics
from tasks.worker.concurrency_meter import HandlerTime
from tasks.worker.delivery_cost import DeliveryLaps
from tasks.worker.ledger_telemetry import attempt_outcomes, delivery_counts


class BatchTelemetry:
    """The measured times and the counts of one batch.

    Parameters:
        begun: when the run began, by the monotonic clock.

    Attributes:
        laps: the measured times of its deliveries.
    """

    def __init__(self, task: MessageTask[..., Any], batch: Batch, ledger: Ledger | None, begun: float) -> None:
        self._handler, self._topic, self._group, self._ledger = task.name, batch.topic, batch.group, ledger
        self._is_automatic = task.batch == "auto"
        self._finds_concurrency = task.concurrency == "auto"
        self._ran, self._has_overrun = HandlerTime(), False
        self.laps = DeliveryLaps(begun)
        self._runs = worker_metrics.RunCounter(task.name, batch.group, self._count_outcome)

    def _count_outcome(self, outcome: str, seconds: Sequence[float]) -> None:
        kind: CountKind = "handled" if outcome == "done" else "failed"
        delivery_counts.add(self._ledger, self._topic, self._handler, kind, len(seconds), seconds)
        if kind == "handled":
            attempt_outcomes.succeeded(self._ledger, self._topic, self._handler)

    def count_run(self, seconds: float, *, succeeded: bool) -> None:
        """Count a run of the handler."""
        self.laps.note_run(seconds)
        self._runs.ended("done" if succeeded else "failed", seconds)
        if self._finds_concurrency:
            self._ran = HandlerTime(self._ran.runs + 1, self._ran.seconds + seconds)
        if seconds >= delivery_cost.SLOW and self._is_automatic:
            delivery_cost.note_slow_run(self._ledger, self._handler)

    def count_retry(self, reason: str) -> None:
        """Count a delivery that runs later."""
        worker_metrics.count_retry(self._handler, self._group, reason)

    def count_duplicate(self, delivery: Delivery, record: str) -> str:
        """Count and log a delivery that is settled without a run, and return its result in words.

        Parameters:
            record: the record with its name that is done.
        """
        worker_metrics.count_duplicate(self._handler, self._group)
        delivery_log.log_duplicate(delivery, record)
        return f"a duplicate of {record}"

    def count_lost_process(self) -> None:
        """Count the process that was lost with this batch."""
        worker_metrics.count_lost_process(self._handler, self._group)
        attempt_outcomes.process_lost(self._ledger, self._topic, self._handler)
        if self._is_automatic:
            delivery_cost.note_lost_process(self._ledger, self._handler)

    def note_failure(self, words: str) -> None:
        """Note a failed attempt."""
        attempt_outcomes.failed(self._ledger, self._topic, self._handler, error=words)

    def note_pace(self) -> None:
        """Note the cost of the deliveries, for the batch size and the number handed off ahead."""
        at_once = concurrency_meter.find_concurrency(self._handler) if self._finds_concurrency else 0
        delivery_cost.note_cost(self._ledger, self._handler, self.laps.cost(), at_once)

    @property
    def seconds(self) -> float:
        """The seconds of the batch's runs, if its concurrency is automatic."""
        return self._ran.seconds

    def note_overrun(self) -> None:
        """Note that a run has overrun its soft time limit."""
        self._has_overrun = True

    def note_concurrency(self, busy: float, at_once: int) -> None:
        """Note the seconds for which the loop did not wait in the batch's runs, for an automatic concurrency.

        Parameters:
            at_once: how many ran side by side.
        """
        latest = self._ran._replace(busy=busy)
        concurrency_meter.note_batch(self._handler, latest, at_once, overran=self._has_overrun)

    def flush(self) -> None:
        """Write the counts of runs."""
        self._runs.flush()
