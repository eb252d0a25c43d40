"""As much of Kafka as a replay needs, in memory; and crashes between any two things that it does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bridge.errors import NeverPublished, PublishFailed
from bridge.kafka.acknowledged_producer import OutgoingRecord, RecordPosition
from bridge.kafka.partition_offsets import Extent


class Crash(BaseException):
    """As kill -9: nothing catches it."""


class Record(NamedTuple):
    """A record, as Kafka's client gives it."""

    letter: OutgoingRecord
    at: int

    def topic(self) -> str:
        return self.letter.topic

    def partition(self) -> int:
        return self.letter.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.letter.key

    def value(self) -> bytes | None:
        return self.letter.value

    def headers(self) -> list[tuple[str, Any]]:
        return list(self.letter.headers)


class Kafka:
    """Topics of so many partitions.

    Parameters:
        happens: is asked at each point what happens there.
        written: is called once something was written, before it is known to who wrote it.
    """

    def __init__(self, happens: Callable[[str], str], written: Callable[[], None], partitions: int = 2) -> None:
        self._happens, self._written, self._partitions = happens, written, partitions
        self.logs: dict[tuple[str, int], list[Record]] = {}

    @property
    def records(self) -> list[Record]:
        """All that was ever written."""
        return [record for log in self.logs.values() for record in log]

    def place_all(self, letters: Sequence[OutgoingRecord]) -> list[RecordPosition | PublishFailed]:
        found: list[RecordPosition | PublishFailed] = []
        for letter in letters:
            match self._happens("publish"):
                case "crash":
                    raise Crash
                case "lost":
                    found.append(PublishFailed("no answer"))
                case "unheard":
                    self._append(letter)
                    found.append(PublishFailed("no answer"))
                case "never":
                    found.append(NeverPublished("too large"))
                case _:
                    found.append(self._append(letter))
        self._written()
        if self._happens("acknowledged") == "crash":
            raise Crash
        return found

    def _append(self, letter: OutgoingRecord) -> RecordPosition:
        log = self.logs.setdefault((letter.topic, letter.partition), [])
        log.append(Record(letter, len(log)))
        return RecordPosition(letter.topic, letter.partition, len(log) - 1)

    def extents(self, _settings: Any, topics: Any) -> list[Extent]:
        places = [(topic, partition) for topic in topics for partition in range(self._partitions)]
        return [Extent(*place, 0, len(self.logs.get(place, [])), None) for place in places]

    def read(self, _settings: Any, starts: Mapping[Any, int], ends: Mapping[Any, int]) -> Iterator[Any]:
        for place, start in starts.items():
            yield from self.logs.get(place, [])[start : ends[place]]
