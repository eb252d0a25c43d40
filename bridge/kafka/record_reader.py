"""A reader that joins no consumer group and commits nothing: all records between two offsets, chosen ones, or the
latest first; with a budget, if a person waits for it.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import Consumer, Record, TopicPartition, consumer_client
from bridge.settings import Settings

#: Seconds without a record after which reading is given up.
SILENCE: Final = 20.0
#: Records that are taken from the client at once; fewer with a budget, which is counted in between.
_AT_ONCE: Final = 1_000
_AT_ONCE_COUNTED: Final = 100


class ReadLimits(NamedTuple):
    """The most that one search reads from Kafka."""

    records: float
    bytes: float
    seconds: float


#: The limits of a command that reads until it is done.
UNLIMITED: Final = ReadLimits(float("inf"), float("inf"), float("inf"))


class ReadBudget:
    """The rest of the limits of one search, which may read several times."""

    def __init__(self, limits: ReadLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._records = self._bytes = 0
        self._began = clock()

    def spend(self, record: Record) -> None:
        """Count a record that was read."""
        self._records += 1
        self._bytes += len(record.value() or b"") + len(record.key() or b"")

    @property
    def reached(self) -> str:
        """Return the limit that is reached, in words: `200,000 records`; empty: none is."""
        if self._records >= self._limits.records:
            return format_count(int(self._limits.records), "record")
        if self._bytes >= self._limits.bytes:
            return f"{self._limits.bytes / 1e6:,.0f} MB"
        if self._clock() - self._began >= self._limits.seconds:
            return f"{self._limits.seconds:g} seconds"
        return ""


def read_records(
    settings: Settings, starts: Mapping[Place, int], ends: Mapping[Place, int], budget: ReadBudget | None = None
) -> Iterator[Record]:
    """Yield the existing records of each partition from its start to below its end.

    Parameters:
        budget: reading ends when it is spent.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    if all(starts[place] >= end for place, end in ends.items()):
        return
    client = consumer_client(settings.kafka, f"{settings.group}.reading")
    try:
        yield from _read_ranges(client, starts, ends, budget)
    finally:
        client.close()


def _read_ranges(
    client: Consumer, starts: Mapping[Place, int], ends: Mapping[Place, int], budget: ReadBudget | None
) -> Generator[Record, None, bool]:
    """Yield the records of `read_records`; return whether all were read before the budget was spent."""
    left = {place: end for place, end in ends.items() if starts[place] < end}
    if not left:
        return True
    client.assign([TopicPartition(*place, starts[place]) for place in left])
    heard = time.monotonic()
    while left:
        for record in client.consume(_AT_ONCE if budget is None else _AT_ONCE_COUNTED, 0.2):
            if record.error() is not None:
                continue
            heard = time.monotonic()
            if budget is not None:
                budget.spend(record)
            place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            end = ends.get(place, 0)
            if offset < end:
                yield record
            if offset + 1 >= end:
                left.pop(place, None)
        _pass_gaps(client, left)
        if left and budget is not None and budget.reached:
            return False
        if time.monotonic() - heard > SILENCE:
            raise KafkaUnavailable(f"Kafka gives no records of {', '.join(sorted({place[0] for place in left}))}.")
    return True


def _pass_gaps(client: Consumer, left: dict[Place, int]) -> None:
    """Drop the partitions that are read: compacted records and transaction markers are never returned, and the
    position shows that they are passed.
    """
    for at in client.position([TopicPartition(*place) for place in left]) if left else []:
        if at.offset >= left[(at.topic, at.partition)]:
            left.pop((at.topic, at.partition))


#: Offsets of a partition in the first window of a backward search, how much larger each next one is, and the most.
_FIRST_WINDOW: Final = 100
_GROWTH: Final = 4
_LARGEST_WINDOW: Final = 100_000


class BackwardReader:
    """A reader of partitions from their ends to their beginnings, window by window, with one client.

    Attributes:
        searched: by partition, the first offset from which on all was read.
    """

    def __init__(self, settings: Settings, budget: ReadBudget) -> None:
        self.searched: dict[Place, int] = {}
        self._budget = budget
        self._client: Consumer = consumer_client(settings.kafka, f"{settings.group}.reading")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def read_windows(
        self, firsts: Mapping[Place, int], ends: Mapping[Place, int], wanted: Callable[[Record], bool]
    ) -> Iterator[list[Record]]:
        """Yield the wanted records of each window, the latest window first; within one, offsets ascend by partition.

        The last list may be of a window that was not read to its end: the budget is spent then.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        size = _FIRST_WINDOW
        left = {place: end for place, end in ends.items() if firsts[place] < end}
        self.searched.update((place, end) for place, end in ends.items())
        while left and not self._budget.reached:
            starts = {place: max(firsts[place], end - size) for place, end in left.items()}
            found: list[Record] = []
            reading = _read_ranges(self._client, starts, left, self._budget)
            if _collect_wanted(reading, wanted, found):
                self.searched.update(starts)
                left = {place: start for place, start in starts.items() if start > firsts[place]}
            else:
                left = {}
            yield found
            size = min(size * _GROWTH, _LARGEST_WINDOW)


def _collect_wanted(
    reading: Generator[Record, None, bool], wanted: Callable[[Record], bool], found: list[Record]
) -> bool:
    """Add the wanted records to a list, and return whether everything was read."""
    while True:
        try:
            record = next(reading)
        except StopIteration as end:
            return bool(end.value)
        if wanted(record):
            found.append(record)


#: Seconds without a record after which reading is given up.
PICK_SILENCE: Final = 20.0


class RecordPicker:
    """A reader of chosen records of one topic, for several calls with one client; records between them are skipped."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._client: Consumer = consumer_client(settings.kafka, f"{settings.group}.reading")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def records(self, wanted: Mapping[int, Sequence[int]], reading: Callable[[], object] = bool) -> Iterator[Record]:
        """Yield those of the wanted records that exist.

        Parameters:
            wanted: the offsets by partition, ascending, at least one.
            reading: is called often, also while none of them is found: there may be many records in between.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        left = {partition: offsets[-1] for partition, offsets in wanted.items()}
        chosen = {partition: frozenset(offsets) for partition, offsets in wanted.items()}
        self._client.assign([TopicPartition(self._topic, number, offsets[0]) for number, offsets in wanted.items()])
        heard = time.monotonic()
        while left:
            reading()
            for record in self._client.consume(1000, 0.2):
                if record.error() is not None:
                    continue
                heard = time.monotonic()
                partition, offset = record.partition() or 0, record.offset() or 0
                if partition not in left:
                    continue
                if offset in chosen[partition]:
                    yield record
                if offset >= left[partition]:
                    del left[partition]
            self._pass_what_is_gone(left)
            if left and time.monotonic() - heard > PICK_SILENCE:
                raise KafkaUnavailable(f"Kafka gives no records of {self._topic}.")

    def _pass_what_is_gone(self, left: dict[int, int]) -> None:
        """Drop the wanted offsets that the position has passed: compacted records and transaction markers are
        never returned.
        """
        for at in self._client.position([TopicPartition(self._topic, number) for number in left]) if left else []:
            if at.offset > left[at.partition]:
                del left[at.partition]
