"""The Prometheus metrics of dead letters, from counters that every change updates: a scrape reads no letter."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, values
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bridge.deadletters.db import kind_rows, plan_rows, sql, webhook_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.position_rows import RecordedLog
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.recorder.batch_writer import ReadRecord, TakenCounts, WrittenBatch
from bridge.errors import DeskUnavailable
from bridge.formats.delivery_identity import Place
from lossless.background_thread import start_call

#: Seconds for which figures are cached, for several scrapers.
EVERY: Final = 5.0
#: Seconds for which a scrape waits for them: other metrics must not wait for a database that hangs.
WITHIN: Final = 2.0
#: Ms for which an ended plan is read again: longer than between two scrapes.
LOOK_BACK: Final = 600_000
#: The outcomes of replays.
ENDS: Final = (
    PlanItemState.DONE,
    PlanItemState.DEAD,
    PlanItemState.DISCARDED,
    PlanItemState.UNKNOWN,
    PlanItemState.REFUSED,
)


#: The labels of metrics by partition.
AT: Final = ("topic", "partition")


class RecorderMetrics:
    """The metrics of a recorder, in a registry of their own: a bridge with a recorder beside it shows both.

    Attributes:
        taken: the counts since it began, for the log.
    """

    def __init__(self) -> None:
        # In memory, even if PROMETHEUS_MULTIPROC_DIR is set for workers: a recorder is one process.
        values.ValueClass = values.MutexValue
        self.registry = CollectorRegistry()
        counter, gauge = partial(PrometheusCounter, registry=self.registry), partial(Gauge, registry=self.registry)
        self.taken = TakenCounts()
        self.recorded = counter(
            "bridge_deadletters_recorded",
            "Records taken in, by what they told: new, died again, duplicate, read again, another group's, refused.",
            ["topic", "what"],
        )
        self.missed = counter(
            "bridge_deadletters_missed",
            "Records that Kafka dropped (its retention) before they were recorded.",
            AT,
        )
        self.failed = counter(
            "bridge_deadletters_database_errors", "Transactions of the recorder that the database did not do."
        )
        self.lag = gauge("bridge_deadletters_lag_records", "Records that Kafka has and the database has not yet.", AT)
        self.ready = gauge("bridge_deadletters_recorder_ready", "1 while the database takes what is read.")

    def count(self, batch: Sequence[ReadRecord], written: WrittenBatch) -> None:
        """Count a batch that was written."""
        self.taken.add((read.letter for read in batch), written.counts)
        for (topic, what), count in written.counts.items():
            self.recorded.labels(topic, what).inc(count)
        for read in batch:
            self.count_missed(read.log, read.missed)

    def expect(self, places: Iterable[Place]) -> None:
        """Show the misses of these partitions at 0: `increase()` misses a series that begins with its first."""
        for place in places:
            self.missed.labels(*place)

    def count_missed(self, log: RecordedLog, missed: int) -> None:
        """Count records that Kafka dropped before they were recorded."""
        if missed:
            self.missed.labels(log.topic, log.partition).inc(missed)

    def show_lag(self, lag: Mapping[Place, int]) -> None:
        """Set the lag of the database in the partitions that this recorder has now."""
        self.lag.clear()
        for place, records in lag.items():
            self.lag.labels(*place).set(max(0, records))


class DeadLetterMetrics(Collector):
    """The collector of open letters, the oldest of them, growing groups, plans that await somebody, and outcomes of
    replays.

    Without an answer of the database it returns none: see `bridge_deadletters_recorder_ready`.

    Parameters:
        seconds: a monotonic clock.
    """

    def __init__(self, database: Database, seconds: Callable[[], float] = time.monotonic) -> None:
        self._database, self._seconds = database, seconds
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._reading: Future[list[Metric]] | None = None
        self._began_at = 0
        self._live: set[int] = set()
        self._ended: dict[int, Counter[str]] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the figures, read at most `EVERY` seconds ago."""
        with self._lock:
            reading = self._reading
            if reading is None or (reading.done() and self._seconds() - self._read_at >= EVERY):
                self._read_at = self._seconds()
                reading = self._reading = start_call("the figures of the dead letters", self._read)
        try:
            return reading.result(WITHIN)
        except TimeoutError:
            return []

    def _read(self) -> list[Metric]:
        try:
            return [*self._open(), self._growing(), self._ends(), self._awaiting(), *self._webhooks()]
        except DeskUnavailable:
            return []

    def _open(self) -> Iterator[Metric]:
        with self._database.reading() as connection:
            handled, oldest = kind_rows.count_by_handler(connection), kind_rows.find_oldest_open(connection)
        open_ = GaugeMetricFamily(
            "bridge_deadletters_open", "Dead letters that are open.", labels=["handler", "reason"]
        )
        counted: Counter[tuple[str, str]] = Counter()
        for handler, reason, status, count in handled:
            counted[handler, reason] += count if status == "open" else 0
        for labels, count in counted.items():
            open_.add_metric(labels, count)
        yield open_
        age = 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)
        yield GaugeMetricFamily(
            "bridge_deadletters_oldest_open_seconds",
            "How long ago the open dead letter failed that failed first; 0: none is open.",
            value=age,
        )

    def _growing(self) -> Metric:
        growing = GaugeMetricFamily(
            "bridge_deadletters_growing_groups",
            "Groups with open letters that grow: more failures in an hour than twice what is usual, and 10 at least.",
            labels=["handler"],
        )
        counted = Counter(group.handler for group in FailureGroups(self._database).urgent() if group.growth)
        with self._database.reading() as connection:
            counted.update(dict.fromkeys((handler for handler, *_ in kind_rows.count_by_handler(connection)), 0))
        for handler, count in counted.items():
            growing.add_metric([handler], count)
        return growing

    def _awaiting(self) -> Metric:
        with self._database.reading() as connection:
            awaiting = plan_rows.read_awaiting_plans(connection)
        return GaugeMetricFamily(
            "bridge_deadletters_plans_awaiting", "Plans that await a second person.", value=len(awaiting)
        )

    def _webhooks(self) -> Iterator[Metric]:
        with self._database.reading() as connection:
            now, stood = sql.read_clock(connection), webhook_rows.read_webhook_backlogs(connection)
        told = GaugeMetricFamily(
            "bridge_deadletters_webhook_deliveries",
            "Messages to webhooks of the last week, by their state: sent, given up, waiting.",
            labels=["webhook", "state"],
        )
        oldest = GaugeMetricFamily(
            "bridge_deadletters_webhook_oldest_waiting_seconds",
            "How long ago the oldest was written that waits to be sent; 0: none does.",
            labels=["webhook"],
        )
        for each in stood:
            for state in webhook_rows.WebhookDeliveryState:
                told.add_metric([each.name, state], each.counts.get(state, 0))
            oldest.add_metric([each.name], 0.0 if each.oldest is None else max(0.0, (now - each.oldest) / 1000))
        yield from (told, oldest)

    def _ends(self) -> Metric:
        """Return how replays ended since this process began; plans that are over are not counted again."""
        with self._database.reading() as connection:
            now = sql.read_clock(connection)
            self._began_at = self._began_at or now
            live = set(plan_rows.find_ending_replays(connection, now - LOOK_BACK))
            self._ended |= plan_rows.count_ended_deliveries(connection, live | self._live, self._began_at)
        self._live = live
        found = CounterMetricFamily(
            "bridge_deadletters_replays", "Replays that ended while this process ran.", labels=["outcome"]
        )
        for outcome in ENDS:
            found.add_metric([outcome], sum(counted[outcome] for counted in self._ended.values()))
        return found
