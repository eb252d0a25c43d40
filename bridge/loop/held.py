"""Records that were read and not yet taken in."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from bridge.kafka import Record
from bridge.metrics import BridgeMetrics
from bridge.records.place import Place


class Held:
    """What one turn has read; while the broker is away, what the last one did.

    Attributes:
        records: by partition, ascending.
    """

    def __init__(self, metrics: BridgeMetrics, clock: Callable[[], float]) -> None:
        self._metrics, self._clock = metrics, clock
        self.records: Mapping[Place, Sequence[Record]] = {}
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def seconds(self) -> float:
        """How long the first of them has been held."""
        return self._clock() - self._since

    def add(self, records: Iterable[tuple[Place, Record]]) -> None:
        """Hold what was read."""
        found: dict[Place, list[Record]] = {}
        for place, record in records:
            found.setdefault(place, []).append(record)
        if found and not self.records:
            self._since = self._clock()
        for place, some in found.items():
            self._metrics.consumed.labels(*place).inc(len(some))
        self.records = {
            **self.records,
            **{place: [*self.records.get(place, ()), *some] for place, some in found.items()},
        }

    def drop(self, places: Iterable[Place]) -> None:
        """These are read again, or are another bridge's now."""
        self.records = {place: some for place, some in self.records.items() if place not in {*places}}

    def clear(self) -> None:
        """All were taken in."""
        self.records = {}
