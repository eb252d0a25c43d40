"""The latest dead letters of a group, for who looks again and again: of each partition only what is new is read."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Final, NamedTuple

from bridge.records import dead_letter
from bridge.records.dead_letter import DeadLetter
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.extents import Extent
from bridge.topics.readback import records

#: How many of a partition's dead letters are looked through for who asks how things stand, the latest.
RECENT: Final = 2_000
#: Characters of its error that are kept of each.
ERROR: Final = 300
#: Seconds after which all is read anew: a topic that was made again may have grown beyond what was read of the old one.
KEPT_FOR: Final = 300.0


class Latest(NamedTuple):
    """Dead letters of a source topic, those of a partition in the order in which they were written.

    Attributes:
        more: whether there are older ones, which were not looked through.
    """

    letters: list[DeadLetter]
    more: bool


@dataclass
class _Kept:
    """What was read of a partition since `since`, with the offset of each; all from `first` on, and below `next`."""

    first: int
    next: int
    since: float
    letters: deque[tuple[int, DeadLetter]] = field(default_factory=deque)


@dataclass
class Recent:
    """Reads dead letters, and keeps what it has read; one thread at a time."""

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _kept: dict[tuple[str, Place], _Kept] = field(default_factory=dict, init=False, repr=False)

    def of(self, topic: str, there: Sequence[Extent]) -> Latest:
        """The latest for a source topic.

        Parameters:
            there: the partitions that they lie in (bridge.topics.dead_letters.where).

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        kept = {each.place: self._known(topic, each) for each in there}
        self._read(topic, kept, {each.place: each.end for each in there})
        for each in there:
            self._kept[topic, each.place] = kept[each.place]
        letters = [letter for some in kept.values() for _, letter in some.letters]
        return Latest(letters, any(kept[each.place].first > each.first for each in there))

    def _known(self, topic: str, there: Extent) -> _Kept:
        """What is kept of a partition, without what is too old; nothing where it may be of another log."""
        first = max(there.first, there.end - RECENT)
        kept = self._kept.pop((topic, there.place), None)
        goes_on = kept is not None and kept.first <= first <= kept.next <= there.end
        if kept is None or not goes_on or self.clock() - kept.since >= KEPT_FOR:
            return _Kept(first, first, self.clock())
        while kept.letters and kept.letters[0][0] < first:
            kept.letters.popleft()
        kept.first = first
        return kept

    def _read(self, topic: str, kept: dict[Place, _Kept], ends: dict[Place, int]) -> None:
        for record in records(self.settings, {place: each.next for place, each in kept.items()}, ends):
            place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            found = dead_letter.read(record)
            if found is not None and (found.group, found.topic) == (self.settings.group, topic):
                kept[place].letters.append((offset, _small(found)))
        for place, end in ends.items():
            kept[place].next = end


def _small(letter: DeadLetter) -> DeadLetter:
    """As far as it is kept; what many have in common is there once."""
    whose = letter.whose._replace(handler=intern(letter.whose.handler), topic_id=intern(letter.whose.topic_id))
    topic, group, reason = intern(letter.topic), intern(letter.group), intern(letter.reason)
    return replace(letter, whose=whose, topic=topic, group=group, reason=reason, error=letter.error[:ERROR])
