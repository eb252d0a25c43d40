"""Which queues a worker leaves to others for a moment, because it knows nothing of what it took there (pure).

A worker that puts everything back at once always has room, and would empty a queue before those that know what lies
there. So after some such messages in quick succession it takes nothing from that queue for a moment, and then a part
of what lies there: the others always find the rest, and what it does know is passed by nothing for long.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Strange messages in a row from which on a queue is left to others. What is mixed with known ones slows nothing.
IN_A_ROW = 3
#: Seconds for which it is left: the shortest while much lies there, doubled up to the longest while little does.
SHORTEST, LONGEST = 0.25, 2.0
#: Seconds without a strange message, the pauses apart, after which a row is over: what comes seldom empties nothing.
ROW_ENDS_AFTER = 2.0

#: Of what lies there, one in so many is looked at between two pauses.
LOOKED_AT_PART = 3
#: In place of a number of messages: as many as there are.
ANY_NUMBER = -1


@dataclass(slots=True)
class _StrangeRow:
    in_a_row: int = 0
    pause: float = SHORTEST / 2
    until: float = 0.0
    #: When the last pause, or the last strange message after it, was over: the row ends some time after that.
    served_from: float = 0.0
    #: How many more are looked at before the next pause, None: that is not known yet.
    left: int | None = None
    much: bool = False


@dataclass(slots=True)
class QueueBackoff:
    """What one channel leaves to others, by queue. Times are seconds of one clock."""

    _turns: dict[str, _StrangeRow] = field(default_factory=dict)

    def most(self, queue: str, now: float) -> int:
        """How many messages may be taken from a queue now: `ANY`, or a number."""
        turn = self._turns.get(queue)
        if turn is None or turn.in_a_row < IN_A_ROW:
            return ANY_NUMBER
        return 0 if turn.until > now else turn.left or 1

    def lie(self, queue: str, length: int) -> None:
        """Be told how many messages lay in a queue from which a number was taken."""
        turn = self._turns.get(queue)
        if turn is not None and turn.left is None:
            turn.left = max(1, length // LOOKED_AT_PART)
            turn.much = turn.left > 1

    def note(self, queue: str, strange: bool, now: float) -> float:
        """Note what a delivered message was. Returns for how long the queue is to be left from now on, 0: it is not."""
        if not strange:
            self._turns.pop(queue, None)
            return 0.0
        turn = self._turns.get(queue)
        if turn is None or now - turn.served_from > ROW_ENDS_AFTER:
            turn = self._turns[queue] = _StrangeRow()
        turn.served_from = max(now, turn.until)
        turn.in_a_row += 1
        if turn.in_a_row < IN_A_ROW or turn.until > now:
            return 0.0
        turn.left = (turn.left or 1) - 1
        if turn.left:
            return 0.0
        turn.pause = SHORTEST if turn.much else min(2 * turn.pause, LONGEST)
        turn.until = turn.served_from = now + turn.pause
        turn.left, turn.much = None, False
        return turn.pause

    def over(self, queues: Iterable[str], now: float) -> bool:
        """Whether a queue that was left to others may be looked at again; of each it is said once."""
        over = [turn for queue in queues if (turn := self._turns.get(queue)) and 0 < turn.until <= now]
        for turn in over:
            turn.until = 0.0
        return bool(over)
