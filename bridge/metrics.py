"""What the bridge measures."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bridge.message import Delivery

Place = tuple[str, int]


class BridgeMetrics:
    """The bridge's metrics in a registry of their own, so that tests can run several in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        at = ("topic", "partition")
        self.consumed = Counter("bridge_records_consumed", "Records read.", at, registry=self.registry)
        self.handed_off = Counter(
            "bridge_deliveries_handed_off",
            "Deliveries that the Celery broker has confirmed.",
            ["topic", "handler"],
            registry=self.registry,
        )
        self.committed = Gauge("bridge_committed_offset", "The committed offset.", at, registry=self.registry)
        self.lag = Gauge(
            "bridge_lag_records",
            "Records between the committed offset and the end.",
            at,
            registry=self.registry,
        )
        self.paused = Gauge("bridge_partition_paused", "1 while paused.", (*at, "reason"), registry=self.registry)
        self.handoff_seconds = Histogram(
            "bridge_handoff_seconds",
            "From a record read to its deliveries confirmed by the Celery broker.",
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.handoff_failures = Counter(
            "bridge_handoff_failures", "Hand-offs that the broker did not confirm.", registry=self.registry
        )
        self.ready = Gauge("bridge_ready", "1 while records are consumed and handed off.", registry=self.registry)

    def count_handed_off(self, deliveries: Iterable[Delivery]) -> None:
        """Count confirmed deliveries by topic and handler."""
        counts: dict[tuple[str, str], int] = {}
        for delivery in deliveries:
            key = (delivery.message.topic, delivery.handler)
            counts[key] = counts.get(key, 0) + 1
        for (topic, handler), count in counts.items():
            self.handed_off.labels(topic, handler).inc(count)

    def show_paused(self, paused: Mapping[Place, str]) -> None:
        """Show which partitions are paused now, and why."""
        self.paused.clear()
        for (topic, partition), reason in paused.items():
            self.paused.labels(topic, partition, reason).set(1)

    def forget(self, places: Iterable[Place]) -> None:
        """Show nothing more of partitions that another bridge has now."""
        for topic, partition in places:
            for gauge in (self.committed, self.lag):
                if (topic, str(partition)) in gauge._metrics:
                    gauge.remove(topic, partition)
