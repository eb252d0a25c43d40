"""The metrics of partitions, summed up by topic.

A bridge with thousands of partitions has tens of thousands of series by partition, and hardly any graph or alert needs
them. bridge/health_server.py answers with these unless a request asks for partitions.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

#: The label that is left out.
PARTITION: Final = "partition"
#: The ends of the names of samples that are times: the earliest of a topic's partitions counts. All others are summed.
TIMES: Final = ("_since_seconds", "_created")


class MetricsByTopic:
    """A view of a registry whose samples have no partition.

    Parameters:
        names: of the samples that are shown; `None` for all.
    """

    def __init__(self, registry: CollectorRegistry, names: Iterable[str] | None = None) -> None:
        self._registry, self._names = registry, names

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics by topic."""
        shown = self._registry if self._names is None else self._registry.restricted_registry(self._names)
        return map(_sum_by_topic, shown.collect())

    def restricted_registry(self, names: Iterable[str]) -> "MetricsByTopic":
        """Return the view with these samples alone, as `name[]` of a request asks for them."""
        return MetricsByTopic(self._registry, names)


def _sum_by_topic(metric: Metric) -> Metric:
    """Return a metric without partitions; one that has none as it is."""
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in metric.samples:
        if PARTITION not in sample.labels:
            return metric
        rest = tuple(label for label in sample.labels.items() if label[0] != PARTITION)
        key = (sample.name, rest)
        known = values.get(key)
        if known is None:
            values[key] = sample.value
        elif sample.name.endswith(TIMES):
            values[key] = min(known, sample.value)
        else:
            values[key] = known + sample.value
    summed = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    summed.samples = [Sample(name, dict(labels), value) for (name, labels), value in values.items()]
    return summed
