"""The telemetry of one batch: its figures for metrics, batch sizes and `bridge status`. It decides nothing."""

from typing import Any

from bridge.ledger import Ledger
from bridge.ledger.attempt_statistics import CountKind
from tasks.declaration.message_task import MessageTask
from tasks.worker import delivery_cost, worker_metrics
from tasks.worker.delivery_cost import DeliveryLaps
from tasks.worker.ledger_telemetry import attempt_outcomes, delivery_counts


class BatchTelemetry:
    """The measured times and the counts of one batch.

    Parameters:
        begun: when the run began, by the monotonic clock.

    Attributes:
        laps: the measured times of its deliveries.
    """

    def __init__(
        self, task: MessageTask[..., Any], topic: str, group: str, ledger: Ledger | None, begun: float
    ) -> None:
        self._handler, self._topic, self._group, self._ledger = task.name, topic, group, ledger
        self._is_automatic = task.batch == "auto"
        self.laps = DeliveryLaps(begun)
        self._runs = worker_metrics.RunCounter(task.name, group, self._count_outcome)

    def _count_outcome(self, outcome: str, number: int) -> None:
        kind: CountKind = "handled" if outcome == "done" else "failed"
        delivery_counts.add(self._ledger, self._topic, self._handler, kind, number)
        if kind == "handled":
            attempt_outcomes.succeeded(self._ledger, self._topic, self._handler)

    def count_run(self, seconds: float, *, succeeded: bool) -> None:
        """Count a run of the handler."""
        self._runs.ended("done" if succeeded else "failed", seconds)
        if self._is_automatic:
            delivery_cost.note_slow_run(self._ledger, self._handler, seconds)

    def count_retry(self, reason: str) -> None:
        """Count a delivery that runs later."""
        worker_metrics.count_retry(self._handler, self._group, reason)

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
        delivery_cost.note_cost(self._ledger, self._handler, self.laps.cost())

    def flush(self) -> None:
        """Write the counts of runs."""
        self._runs.flush()
