"""What a recorder measures."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, values

from bridge.records.place import Place

#: The labels of what is told of each partition.
AT: Final = ("topic", "partition")


class RecorderMetrics:
    """A recorder's metrics, in a registry of their own: a bridge that runs a recorder beside it shows both."""

    def __init__(self) -> None:
        # In memory, also where the environment has PROMETHEUS_MULTIPROC_DIR for workers: a recorder is one process.
        values.ValueClass = values.MutexValue
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
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

    def show_lag(self, lag: Mapping[Place, int]) -> None:
        """Show how far the database is behind, in the partitions that this recorder has now."""
        self.lag.clear()
        for place, records in lag.items():
            self.lag.labels(*place).set(max(0, records))
