"""A page of metrics by topic: counts are summed over its partitions, of times the earliest counts."""

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest

from bridge.bridge_metrics import BridgeMetrics
from bridge.metrics_by_topic import MetricsByTopic


@pytest.fixture
def metrics() -> BridgeMetrics:
    return BridgeMetrics()


@pytest.fixture
def value(metrics: BridgeMetrics) -> Callable[..., float | None]:
    """Return the value of a sample on the page by topic, `None` if it has none."""

    def read(name: str, **labels: str) -> float | None:
        found = [
            sample.value
            for metric in MetricsByTopic(metrics.registry).collect()
            for sample in metric.samples
            if (sample.name, sample.labels) == (name, labels)
        ]
        assert len(found) < 2
        return found[0] if found else None

    return read


def test_counts_of_a_topic_are_those_of_its_partitions_together(metrics: BridgeMetrics, value: Callable[..., float]):
    for topic, partition, count in (("orders", 0, 2), ("orders", 1, 3), ("mail", 0, 7)):
        metrics.consumed.labels(topic, partition).inc(count)
        metrics.lag.labels(topic, partition).set(count)
        metrics.show_fates((topic, partition), "charge", {"open": count, "dead": 1}, 1)
    assert value("bridge_records_consumed_total", topic="orders") == 5
    assert value("bridge_lag_records", topic="mail") == 7
    assert value("bridge_fates", topic="orders", handler="charge", fate="open") == 5
    assert value("bridge_unaccounted", topic="orders", handler="charge") == 2


def test_a_topic_is_paused_since_its_first_partition_is(metrics: BridgeMetrics, value: Callable[..., float]):
    metrics.show_paused({("orders", 0): "halted", ("orders", 1): "halted", ("orders", 2): "queue q"})
    metrics.paused_since.labels("orders", 0, "halted").set(500)
    metrics.paused_since.labels("orders", 1, "halted").set(400)
    assert value("bridge_partition_paused", topic="orders", reason="halted") == 2
    assert value("bridge_partition_paused_since_seconds", topic="orders", reason="halted") == 400


def test_what_has_no_partition_is_as_it_is(metrics: BridgeMetrics, value: Callable[..., float]):
    metrics.show_workers({"bridge": 3})
    metrics.handoff_seconds.observe(0.02)
    assert value("bridge_workers", queue="bridge") == 3
    assert value("bridge_handoff_seconds_bucket", le="0.025") == 1


def test_the_page_is_as_large_with_a_thousand_partitions_as_with_one(metrics: BridgeMetrics):
    def fill(partitions: int) -> int:
        for partition in range(partitions):
            metrics.expect([("orders", partition)])
            metrics.lag.labels("orders", partition).set(0)
            metrics.show_fates(("orders", partition), "charge", {"done": 0}, 0)
        return len(generate_latest(MetricsByTopic(metrics.registry)).splitlines())

    assert fill(1) == fill(1000)
