"""The metrics of a Prometheus registry, sent by OTLP: the same names, labels and values as on /metrics."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Protocol

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.samples import Sample

from lossless.background_thread import BackgroundThread

logger = logging.getLogger(__name__)

#: The variable of the seconds between two exports, in milliseconds, and its default.
INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL: Final = 60_000.0
_SHORTEST_INTERVAL: Final = 1_000.0
_SCOPE: Final = InstrumentationScope("celery-kafka-bridge")
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
#: The ends of the names of samples that only grow; `_created` is the time from which they count.
_GROWING: Final = ("_total", "_count", "_sum")
_CREATED: Final = "_created"

Labels = tuple[tuple[str, str], ...]


class MetricSource(Protocol):
    """A registry of prometheus_client, or a view of one."""

    def collect(self) -> Iterable[PrometheusMetric]:
        """Yield its metrics."""


class MetricsExport:
    """The thread that exports a registry's metrics every minute, and once more at its end.

    Parameters:
        environ: with OpenTelemetry's variables.
    """

    def __init__(self, source: MetricSource, resource: Resource, environ: Mapping[str, str]) -> None:
        self._source, self._resource = source, resource
        self._exporter = OTLPMetricExporter()
        self._since = time.time_ns()
        given = environ.get(INTERVAL, "")
        self._interval = max(_SHORTEST_INTERVAL, float(given) if given.isdecimal() else _DEFAULT_INTERVAL) / 1000
        self._thread = BackgroundThread("OTLP metrics", self._run)
        self._thread.start()

    def end(self, within: float) -> None:
        """Export once more, within so many seconds, and stop."""
        self._thread.stop(within)

    def _run(self) -> None:
        while not self._thread.stopping.wait(self._interval):
            self._try_export()
        self._try_export()

    def _try_export(self) -> None:
        try:
            self._export()
        except Exception:  # the next export has the counts of this one too
            logger.exception("no metrics were sent by OTLP this time")

    def _export(self) -> None:
        metrics = [*convert_metrics(self._source.collect(), self._since, time.time_ns())]
        scopes = [ScopeMetrics(_SCOPE, metrics, "")]
        # An endpoint that is down is logged by the exporter; the next export has the counts of this one too.
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, scopes, "")]))


def convert_metrics(metrics: Iterable[PrometheusMetric], since: int, now: int) -> Iterator[Metric]:
    """Yield metrics of Prometheus as those of OpenTelemetry (pure).

    Parameters:
        since: when counting began, in ns since the epoch, for a counter that does not say it.
        now: ns since the epoch.
    """
    for metric in metrics:
        created = {_labels(each): int(each.value * 1e9) for each in metric.samples if each.name.endswith(_CREATED)}
        samples = [each for each in metric.samples if not each.name.endswith(_CREATED)]
        if metric.type == "histogram":
            points = [*_histogram_points(samples, created, since, now)]
            yield Metric(metric.name, metric.documentation, metric.unit, Histogram(points, _CUMULATIVE))
            continue
        for name in dict.fromkeys(each.name for each in samples):
            its = [each for each in samples if each.name == name]
            grows = metric.type in ("counter", "summary") and name.endswith(_GROWING)
            numbers = [_number_point(each, created.get(_labels(each), since) if grows else None, now) for each in its]
            data = Sum(numbers, _CUMULATIVE, is_monotonic=True) if grows else Gauge(numbers)
            yield Metric(name, metric.documentation, metric.unit, data)


def _number_point(sample: Sample, since: int | None, now: int) -> NumberDataPoint:
    return NumberDataPoint(dict(sample.labels), since, now, sample.value)  # type: ignore[arg-type]


def _histogram_points(
    samples: Iterable[Sample], created: Mapping[Labels, int], since: int, now: int
) -> Iterator[HistogramDataPoint]:
    series: dict[Labels, dict[str, Any]] = {}
    for sample in samples:
        found = series.setdefault(_labels(sample), {"bounds": {}, "sum": 0.0})
        if sample.name.endswith("_bucket"):
            found["bounds"][float(sample.labels["le"])] = int(sample.value)
        elif sample.name.endswith("_sum"):
            found["sum"] = sample.value
    for labels, found in series.items():
        bounds = sorted(found["bounds"])
        counts = [found["bounds"][bound] for bound in bounds]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=created.get(labels, since),
            time_unix_nano=now,
            count=counts[-1] if counts else 0,
            sum=found["sum"],
            bucket_counts=[after - before for before, after in pairwise([0, *counts])],
            explicit_bounds=bounds[:-1],
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )


def _labels(sample: Sample) -> Labels:
    return tuple((name, value) for name, value in sample.labels.items() if name != "le")
