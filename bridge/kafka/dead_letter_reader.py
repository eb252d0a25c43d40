"""Dead letters read back from Kafka: those of a group for one source topic, and the latest of them, kept in memory."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Final, NamedTuple

from bridge.formats import dead_letter_record
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.delivery_identity import Place
from bridge.kafka.partition_offsets import Extent, ExtentRead, read_extents, starts_of_latest
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_names import TopicNames
from bridge.settings import Settings


class DeadLetterStream(NamedTuple):
    """The dead letters of a topic while they are read, those of a partition in the order of writing.

    Attributes:
        letters: read from Kafka one by one; raises KafkaUnavailable when it does not answer.
        whole: whether retention has dropped none.
    """

    letters: Iterator[DeadLetterSummary]
    whole: bool


def find_dead_letter_partitions(
    settings: Settings, topics: Iterable[str], read: ExtentRead | None = None
) -> dict[str, list[Extent]]:
    """Return the partitions of each source topic's dead letters, in one request.

    Parameters:
        read: reads the extents; `None`: all partitions must be readable.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    named = {topic: TopicNames.from_settings(settings).dead_letters(topic) for topic in topics}
    extents: dict[str, list[Extent]] = {name: [] for name in named.values()}
    for extent in (read or read_extents)(settings, extents):
        extents[extent.topic].append(extent)
    return {topic: extents[name] for topic, name in named.items()}


def read_dead_letters(
    settings: Settings,
    topic: str,
    last: int | None = None,
    read: ExtentRead | None = None,
) -> DeadLetterStream:
    """Return the dead letters of this group for a source topic.

    Parameters:
        last: how many of the latest records of each partition are read; `None` for all.
        read: as in `find_dead_letter_partitions`.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    there = find_dead_letter_partitions(settings, [topic], read)[topic]
    starts = {extent.place: extent.first if last is None else max(extent.first, extent.end - last) for extent in there}
    letters = _read_letters(settings, topic, starts, there)
    return DeadLetterStream(letters, whole=all(extent.first == 0 for extent in there))


def read_latest_of_partition(settings: Settings, topic: str, partition: int, last: int) -> Iterator[DeadLetterSummary]:
    """Return the latest dead letters of this group for a partition of a source topic, and others beside them.

    Parameters:
        last: as in `starts_of_latest`.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    there = find_dead_letter_partitions(settings, [topic])[topic]
    return _read_letters(settings, topic, starts_of_latest(there, partition, last), there)


def _read_letters(
    settings: Settings, topic: str, starts: Mapping[Place, int], there: Iterable[Extent]
) -> Iterator[DeadLetterSummary]:
    ends = {extent.place: extent.end for extent in there if extent.place in starts}
    read = map(dead_letter_record.read_dead_letter_summary, read_records(settings, starts, ends))
    return (found for found in read if found is not None and (found.group, found.topic) == (settings.group, topic))


#: Maximum number of a partition's latest dead letters that are read for a report.
MOST_RECENT: Final = 2_000
#: Maximum number of characters of an error that is kept.
KEPT_ERROR: Final = 300
#: Seconds after which all is read again: a recreated topic may have grown beyond what was read of the old one.
KEPT_FOR: Final = 300.0


class LatestDeadLetters(NamedTuple):
    """The latest dead letters of a source topic, those of a partition in the order of writing.

    Attributes:
        more: whether there are older ones, which were not read.
    """

    letters: list[DeadLetterSummary]
    more: bool


@dataclass
class _KeptPartition:
    """The dead letters of a partition read since `since`, with their offsets: all from `first` on and below `next`."""

    first: int
    next: int
    since: float
    letters: deque[tuple[int, DeadLetterSummary]] = field(default_factory=deque)


@dataclass
class RecentDeadLetters:
    """A reader of dead letters that keeps what it has read, for one thread."""

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _kept: dict[tuple[str, Place], _KeptPartition] = field(default_factory=dict, init=False, repr=False)

    def read_latest(self, topic: str, there: Sequence[Extent]) -> LatestDeadLetters:
        """Return the latest dead letters of a source topic.

        Parameters:
            there: the partitions of its dead letters (`find_dead_letter_partitions`).

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        kept = {extent.place: self._known(topic, extent) for extent in there}
        self._read(topic, kept, {extent.place: extent.end for extent in there})
        for extent in there:
            self._kept[topic, extent.place] = kept[extent.place]
        letters = [letter for some in kept.values() for _, letter in some.letters]
        return LatestDeadLetters(letters, any(kept[extent.place].first > extent.first for extent in there))

    def _known(self, topic: str, there: Extent) -> _KeptPartition:
        """Return the recent dead letters kept of a partition; none if its log may be another one."""
        first = max(there.first, there.end - MOST_RECENT)
        kept = self._kept.pop((topic, there.place), None)
        goes_on = kept is not None and kept.first <= first <= kept.next <= there.end
        if kept is None or not goes_on or self.clock() - kept.since >= KEPT_FOR:
            return _KeptPartition(first, first, self.clock())
        while kept.letters and kept.letters[0][0] < first:
            kept.letters.popleft()
        kept.first = first
        return kept

    def _read(self, topic: str, kept: dict[Place, _KeptPartition], ends: dict[Place, int]) -> None:
        for record in read_records(self.settings, {place: each.next for place, each in kept.items()}, ends):
            place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            found = dead_letter_record.read_dead_letter_summary(record)
            if found is not None and (found.group, found.topic) == (self.settings.group, topic):
                kept[place].letters.append((offset, _shorten_letter(found)))
        for place, end in ends.items():
            kept[place].next = end


def _shorten_letter(letter: DeadLetterSummary) -> DeadLetterSummary:
    """Return a dead letter with a shortened error and shared strings, and without its key."""
    whose = letter.whose._replace(handler=intern(letter.whose.handler), topic_id=intern(letter.whose.topic_id))
    topic, group, reason = intern(letter.topic), intern(letter.group), intern(letter.reason)
    return replace(
        letter, whose=whose, topic=topic, group=group, reason=reason, error=letter.error[:KEPT_ERROR], key=None
    )
