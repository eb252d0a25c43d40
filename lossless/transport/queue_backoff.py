"""The backoff from queues whose messages this worker does not know (pure).

A worker that puts everything back at once always has room, and would empty a queue before the workers that know its
messages. So after some unknown messages in quick succession it takes nothing from that queue for a moment, and then
only a part: others always find the rest, and messages that it does know are not delayed for long.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from lossless.backoff import Backoff

#: Unknown messages in a row from which on a queue is left to others. Unknown among known ones slow nothing.
IN_A_ROW = 3
#: Seconds of a pause: the first while the queue is long, growing while it is short.
PAUSE: Final = Backoff(first=0.25, most=2.0)
#: Seconds without an unknown message, pauses not counted, after which a row is over.
ROW_ENDS_AFTER = 2.0

#: Of the queued messages, one in so many is taken between two pauses.
LOOKED_AT_PART = 3
#: In place of a number of messages: no limit.
ANY_NUMBER = -1


@dataclass(slots=True)
class _UnknownRow:
    in_a_row: int = 0
    #: The pauses in a row while the queue was short.
    pauses: int = 0
    until: float = 0.0
    #: When the last pause, or the last unknown message after it, was over: the row ends some time after that.
    served_from: float = 0.0
    #: How many more are taken before the next pause, None: unknown yet.
    left: int | None = None
    much: bool = False


@dataclass(slots=True)
class QueueBackoff:
    """The backoff of one channel, by queue. Times are seconds of one clock."""

    _turns: dict[str, _UnknownRow] = field(default_factory=dict)

    def limit(self, queue: str, now: float) -> int:
        """Return how many messages may be taken from a queue now: a number, or `ANY_NUMBER`."""
        turn = self._turns.get(queue)
        if turn is None or turn.in_a_row < IN_A_ROW:
            return ANY_NUMBER
        return 0 if turn.until > now else turn.left or 1

    def note_length(self, queue: str, length: int) -> None:
        """Note how many messages were in a queue when some were taken from it."""
        turn = self._turns.get(queue)
        if turn is not None and turn.left is None:
            turn.left = max(1, length // LOOKED_AT_PART)
            turn.much = turn.left > 1

    def note(self, queue: str, unknown: bool, now: float) -> float:
        """Note what a delivered message was. Returns for how long the queue is to be left from now on, 0: it is not."""
        if not unknown:
            self._turns.pop(queue, None)
            return 0.0
        turn = self._turns.get(queue)
        if turn is None or now - turn.served_from > ROW_ENDS_AFTER:
            turn = self._turns[queue] = _UnknownRow()
        turn.served_from = max(now, turn.until)
        turn.in_a_row += 1
        if turn.in_a_row < IN_A_ROW or turn.until > now:
            return 0.0
        turn.left = (turn.left or 1) - 1
        if turn.left:
            return 0.0
        before = 0 if turn.much else turn.pauses
        pause = PAUSE.compute_pause(before)
        turn.pauses = before + 1
        turn.until = turn.served_from = now + pause
        turn.left, turn.much = None, False
        return pause

    def over(self, queues: Iterable[str], now: float) -> bool:
        """Return whether a queue that was left to others may be polled again; each is reported once."""
        over = [turn for queue in queues if (turn := self._turns.get(queue)) and 0 < turn.until <= now]
        for turn in over:
            turn.until = 0.0
        return bool(over)
