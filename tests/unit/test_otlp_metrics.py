"""Metrics of Prometheus by OTLP: what a receiver gets is what /metrics shows."""

from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bridge.telemetry import otlp_metrics
from bridge.telemetry.otlp_metrics import MetricsExport
from tests.project_process import eventually
from tests.servers.collector import collecting


def test_a_receiver_gets_counters_gauges_and_histograms_with_their_labels(monkeypatch: pytest.MonkeyPatch):
    registry = CollectorRegistry()
    Counter("handled", "Runs.", ["handler"], registry=registry).labels("charge").inc(3)
    Gauge("waiting", "Messages.", registry=registry).set(7)
    took = Histogram("seconds", "How long.", ["handler"], registry=registry, buckets=(0.1, 1))
    for seconds in (0.05, 0.5, 0.6, 9):
        took.labels("charge").observe(seconds)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        MetricsExport(registry, Resource({"service.name": "shop"}), {}).end(10)
        metrics = dict(collector.metrics)
    assert metrics.keys() == {"handled_total", "waiting", "seconds"}
    (handled,) = metrics["handled_total"].sum.data_points
    assert metrics["handled_total"].sum.is_monotonic
    assert (handled.as_double, handled.attributes[0].value.string_value) == (3, "charge")
    assert 0 < handled.start_time_unix_nano <= handled.time_unix_nano
    assert [point.as_double for point in metrics["waiting"].gauge.data_points] == [7]
    (histogram,) = metrics["seconds"].histogram.data_points
    assert (list(histogram.bucket_counts), list(histogram.explicit_bounds)) == ([1, 2, 1], [0.1, 1])
    assert (histogram.count, histogram.sum) == (4, pytest.approx(10.15))


def test_a_source_that_raises_ends_no_export(monkeypatch: pytest.MonkeyPatch):
    registry = CollectorRegistry()
    Gauge("waiting", "Messages.", registry=registry).set(7)
    tries: list[int] = []

    class Torn:
        def collect(self) -> Any:
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("a file is torn")
            return registry.collect()

    monkeypatch.setattr(otlp_metrics, "_SHORTEST_INTERVAL", 10.0)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        export = MetricsExport(Torn(), Resource({"service.name": "shop"}), {"OTEL_METRIC_EXPORT_INTERVAL": "0"})
        eventually(lambda: "waiting" in dict(collector.metrics), 10)
        export.end(10)
