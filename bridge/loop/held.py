"""Records that were read and not yet taken in."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from bridge.kafka import Record
from bridge.loop.rests import FEW
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
        self._since: dict[Place, float] = {}

    def __bool__(self) -> bool:
        return bool(self.records)

    def since(self, parked: Collection[Place]) -> float | None:
        """When the first live record of them was read, by the clock; `None`: there is none."""
        return min((self._since[place] for place in self.records if place not in parked), default=None)

    def add(self, records: Iterable[tuple[Place, Record]]) -> None:
        """Hold what was read."""
        found: dict[Place, list[Record]] = {}
        for place, record in records:
            found.setdefault(place, []).append(record)
        now = self._clock()
        self._since = {
            place: self._since[place] if place in self.records else now for place in {**self.records, **found}
        }
        for place, some in found.items():
            self._metrics.consumed.labels(*place).inc(len(some))
        self.records = {
            **self.records,
            **{place: [*self.records.get(place, ()), *some] for place, some in found.items()},
        }

    def drop(self, places: Iterable[Place]) -> None:
        """These are read again, or are another bridge's now."""
        dropped = {*places}
        self.records = {place: some for place, some in self.records.items() if place not in dropped}

    def take_live(self, parked: Collection[Place]) -> Mapping[Place, Sequence[Record]]:
        """All live records, which are held no more."""
        taken = {place: some for place, some in self.records.items() if place not in parked}
        self.records = {place: some for place, some in self.records.items() if place in parked}
        return taken

    def take_parked(self, parked: Collection[Place], most: int) -> Mapping[Place, Sequence[Record]]:
        """A few records of retry and replay topics, which are held no more: reading their headers takes a while.

        Parameters:
            parked: the partitions of these topics.
            most: records of all of these together, of one after another.
        """
        taken, left = {}, {}
        portion = max(FEW, most // max(1, sum(place in parked for place in self.records)))
        for place, some in self.records.items():
            few = some[: min(most, portion)] if place in parked else []
            most -= len(few)
            if few:
                taken[place] = few
            if len(few) < len(some):
                left[place] = some[len(few) :]
        # Another partition's are first the next time: more of one travel together than of each a few.
        self.records = {place: left[place] for place in sorted(left, key=taken.__contains__)}
        return taken

    def put_back(self, taken: Mapping[Place, Sequence[Record]]) -> None:
        """These were not taken in."""
        self.records = {
            place: [*taken.get(place, ()), *self.records.get(place, ())] for place in {**taken, **self.records}
        }
