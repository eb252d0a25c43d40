"""The buffer of polled records that were not taken in yet, and the share of the loop's time for retry records.

A retry record costs a bridge as much as a live one, and a million of them may be due at once. So the bridge takes up a
few, and then rests for a moment in which only live records go out.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Record


class RecordBuffer:
    """The records that were polled and not taken in yet.

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
        """Return when the first live record was read, by the clock; `None` if there is none."""
        return min((self._since[place] for place in self.records if place not in parked), default=None)

    def add(self, records: Iterable[tuple[Place, Record]]) -> None:
        """Add polled records."""
        polled: dict[Place, list[Record]] = {}
        for place, record in records:
            polled.setdefault(place, []).append(record)
        now = self._clock()
        self._since = {
            place: self._since[place] if place in self.records else now for place in {**self.records, **polled}
        }
        for place, polled_records in polled.items():
            self._metrics.consumed.labels(*place).inc(len(polled_records))
        self.records = {
            **self.records,
            **{place: [*self.records.get(place, ()), *polled_records] for place, polled_records in polled.items()},
        }

    def drop(self, places: Iterable[Place]) -> None:
        """Drop the records of partitions that are read again, or that another bridge has now."""
        dropped = {*places}
        self.records = {place: some for place, some in self.records.items() if place not in dropped}

    def take_live(self, parked: Collection[Place]) -> Mapping[Place, Sequence[Record]]:
        """Remove and return all live records."""
        taken = {place: some for place, some in self.records.items() if place not in parked}
        self.records = {place: some for place, some in self.records.items() if place in parked}
        return taken

    def take_parked(self, parked: Collection[Place], most: int) -> Mapping[Place, Sequence[Record]]:
        """Remove and return a few records of retry and replay topics: reading their headers takes a while.

        Parameters:
            parked: the partitions of these topics.
            most: records of all these partitions together.
        """
        taken, left = {}, {}
        portion = max(FEW_RETRY_RECORDS, most // max(1, sum(place in parked for place in self.records)))
        for place, some in self.records.items():
            few = some[: min(most, portion)] if place in parked else []
            most -= len(few)
            if few:
                taken[place] = few
            if len(few) < len(some):
                left[place] = some[len(few) :]
        # Another partition is first the next time: many records of one make larger batches than a few of each.
        self.records = {place: left[place] for place in sorted(left, key=taken.__contains__)}
        return taken

    def put_back(self, taken: Mapping[Place, Sequence[Record]]) -> None:
        """Put back records that were not taken in."""
        self.records = {
            place: [*taken.get(place, ()), *self.records.get(place, ())] for place in {**taken, **self.records}
        }


#: Seconds after a live record for which more are expected.
LIVE_FOR: Final = 5.0
#: Records of retry and replay topics that are taken up at once: while live records come, and while none do.
FEW_RETRY_RECORDS: Final = 30
MANY_RETRY_RECORDS: Final = 150
#: The cost of a record in Redis, Kafka and workers, as a multiple of its cost in the bridge (2.5 was measured on one
#: machine with all of them).
COST_ELSEWHERE: Final = 3.0
#: Most seconds of a rest: what took long may have waited for something else.
REST_AT_MOST: Final = 0.05


class RetryTimeShare:
    """The share of the loop's time for retry records; all of it while no live records come.

    Parameters:
        share: `kafka_retry_share`.
    """

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._share, self._clock = share, clock
        self._live_at: float | None = None
        self._rests_until = 0.0

    def note_live(self) -> None:
        """Note that live records have come."""
        self._live_at = self._clock()

    def note_spent(self, seconds: float) -> None:
        """Note the time that retry records took: a rest follows."""
        if self._is_live:
            rest = seconds * COST_ELSEWHERE * (1 - self._share) / self._share
            self._rests_until = self._clock() + min(rest, REST_AT_MOST)

    @property
    def left(self) -> float:
        """Return for how many seconds no retry record is taken up yet."""
        return max(0.0, self._rests_until - self._clock())

    @property
    def few(self) -> int:
        """Return how many records of retry and replay topics are taken up at once now."""
        if self.left:
            return 0
        return FEW_RETRY_RECORDS if self._is_live else MANY_RETRY_RECORDS

    @property
    def _is_live(self) -> bool:
        return self._live_at is not None and self._clock() - self._live_at < LIVE_FOR
