"""The dead letters of an audited topic, tallied while they are read: a dead delivery takes some twenty bytes."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.text_forms import format_time

#: The most characters of an error that are kept.
MAX_ERROR: Final = 300
#: The number of a delivery's reason if it has no dead letter of its own handler.
_NO_REASON: Final = 0


@dataclass(frozen=True)
class DeathSummary:
    """The dead deliveries of one handler and reason, with the error of the last; times as ISO 8601."""

    handler: str
    reason: str
    count: int
    error: str
    since: str
    last: str


class DeadDeliveries:
    """The dead deliveries of one handler on one partition, and what their last dead letters say.

    Parameters:
        runs: their offsets, ascending.
        earlier: the handlers before it in its `sequence`: their dead letter is its delivery's, too.
    """

    def __init__(self, handler: str, partition: int, runs: Iterable[range], earlier: Sequence[str] = ()) -> None:
        self.handler, self.partition = handler, partition
        self.names: Final = (handler, *earlier)
        self.offsets: Final = array("q", (offset for run in runs for offset in run))
        self.reasons: Final = array("l", bytes(array("l").itemsize * len(self.offsets)))
        self.times: Final = array("d", bytes(8 * len(self.offsets)))
        self.has_letter: Final = bytearray(len(self.offsets))

    def find(self, offset: int) -> int | None:
        """Return the place of an offset among the dead; `None` if its delivery is not dead."""
        place = bisect_left(self.offsets, offset)
        return place if place < len(self.offsets) and self.offsets[place] == offset else None

    def first_without_letter(self, count: int) -> list[int]:
        """Return the first dead offsets without a dead letter of this handler, or of an earlier one of its sequence."""
        return list(islice((o for o, there in zip(self.offsets, self.has_letter, strict=True) if not there), count))


class LetterTally:
    """A count of dead letters by handler and reason, of deliveries that are dead now."""

    def __init__(self, dead: Iterable[DeadDeliveries]) -> None:
        self._dead: Final = list(dead)
        self._by_letter: Final[dict[tuple[int, str], list[DeadDeliveries]]] = {}
        for deliveries in self._dead:
            for name in deliveries.names:
                self._by_letter.setdefault((deliveries.partition, name), []).append(deliveries)
        #: The number of each reason, from 1 on.
        self._reasons: Final[dict[str, int]] = {}
        #: Of each handler and reason the newest error, and its time.
        self._newest: Final[dict[tuple[str, int], tuple[float, str]]] = {}

    def add(self, letter: DeadLetterSummary) -> None:
        """Take a dead letter in; it counts in place of an earlier one of its delivery."""
        whose = letter.whose
        for deliveries in self._by_letter.get((whose.partition, whose.handler), ()):
            place = deliveries.find(whose.offset)
            if place is None:
                continue
            deliveries.has_letter[place] = 1
            if deliveries.handler == whose.handler:
                reason = self._reasons.setdefault(letter.reason, len(self._reasons) + 1)
                deliveries.reasons[place], deliveries.times[place] = reason, letter.failed_at
                newest = self._newest.get((whose.handler, reason))
                if newest is None or newest[0] <= letter.failed_at:
                    self._newest[whose.handler, reason] = letter.failed_at, letter.error[:MAX_ERROR]

    def summarize(self) -> list[DeathSummary]:
        """Return the dead deliveries by handler and reason."""
        found: dict[tuple[str, str, int], tuple[int, float, float]] = {}
        names = {number: reason for reason, number in self._reasons.items()}
        for deliveries in self._dead:
            for number, at in zip(deliveries.reasons, deliveries.times, strict=True):
                if number != _NO_REASON:
                    key = (deliveries.handler, names[number], number)
                    count, since, last = found.get(key, (0, at, at))
                    found[key] = (count + 1, min(since, at), max(last, at))
        return [
            DeathSummary(
                handler, reason, count, self._newest[handler, number][1], format_time(since), format_time(last)
            )
            for (handler, reason, number), (count, since, last) in sorted(found.items())
        ]
