"""Records that were polled and not taken in yet, and the share of the loop's time for retry records.

A retry record costs a bridge as much as a live one, and a million of them may be due at once: so the bridge takes up
a few and pauses in between, in which live records alone go out.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Record


class RecordBuffer:
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
        portion = max(FEW_RETRY_RECORDS, most // max(1, sum(place in parked for place in self.records)))
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


#: Seconds after a live record for which more are expected.
LIVE_FOR: Final = 5.0
#: Records of retry and replay topics that are taken up at once: where live records come, and where none do.
FEW_RETRY_RECORDS: Final = 30
MANY_RETRY_RECORDS: Final = 150
#: What a record costs elsewhere, in Redis, Kafka and workers, as a multiple of what it costs the bridge: on one machine
#: with all of them 2.5 was measured.
COST_ELSEWHERE: Final = 3.0
#: Seconds that a rest takes at most: what took long may have waited for something else.
REST_AT_MOST: Final = 0.05


class RetryTimeShare:
    """What was parked has its share of the time, and all of it where nothing else comes.

    Parameters:
        share: `kafka_retry_share`.
    """

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._share, self._clock = share, clock
        self._live_at: float | None = None
        self._rests_until = 0.0

    def live(self) -> None:
        """Live records have come."""
        self._live_at = self._clock()

    def spent(self, seconds: float) -> None:
        """So long was spent on what was parked."""
        if self._is_live:
            rest = seconds * COST_ELSEWHERE * (1 - self._share) / self._share
            self._rests_until = self._clock() + min(rest, REST_AT_MOST)

    @property
    def left(self) -> float:
        """Seconds for which nothing of what was parked is taken up yet."""
        return max(0.0, self._rests_until - self._clock())

    @property
    def few(self) -> int:
        """How many records of retry and replay topics are taken up at once now."""
        if self.left:
            return 0
        return FEW_RETRY_RECORDS if self._is_live else MANY_RETRY_RECORDS

    @property
    def _is_live(self) -> bool:
        return self._live_at is not None and self._clock() - self._live_at < LIVE_FOR
