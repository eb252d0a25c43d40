"""The limits above which a partition stops reading: waiting deliveries, bytes held, and the window of offsets (pure).

The bytes of all partitions together have a limit too (`kafka_pause_above_held_bytes`), which they share. A partition
resumes at half of a limit. bridge/backpressure has the limits of queues and topics, and pauses and resumes.
"""

from collections.abc import Iterable
from math import inf
from typing import Final

from bridge.formats.pause_reasons import PauseReason
from bridge.partitions.safe_offset import Commit

#: Deliveries of one partition that wait, and bytes of its records that are held.
WAITING: Final = 10_000
HELD_BYTES: Final = 100_000_000
#: Records of a retry topic that were read and not taken in. It resumes at half, because Kafka's answer takes a while.
MOST_UNTAKEN: Final = 1_000
#: The part of a limit below which a paused partition resumes.
RESUME_BELOW: Final = 0.5


def exceeds_limit(amount: float, limit: float, *, paused: bool) -> bool:
    """Return whether an amount stops a partition: it is above the limit, or above half of it if it has paused."""
    return amount > limit * (RESUME_BELOW if paused else 1.0)


def is_window_full(offsets: int, window: int, commit: Commit, *, paused: bool) -> bool:
    """Return whether a partition must stop reading because of the offsets since its first unsettled one.

    Only `commit="completion"` has the window: the commit waits there for the slowest delivery.

    Parameters:
        offsets: how many were read from the first unsettled one on.
        window: the most of them (`kafka_window`).
        paused: whether the partition has paused.
    """
    return commit == "completion" and exceeds_limit(offsets, window, paused=paused)


class HeldBytesLimit:
    """The limit of the bytes that all partitions of a bridge hold together.

    From the limit until half of it is left, each partition may hold an equal share of that half. Those that hold less
    leave the rest to the others, and read on: a partition with slow handlers or large records stops itself alone.

    Parameters:
        most: bytes (`kafka_pause_above_held_bytes`).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._exceeded = False

    def find_share(self, held: Iterable[int]) -> float:
        """Return the most bytes that a partition may hold now, infinite while the limit is kept.

        Parameters:
            held: the bytes of each partition.
        """
        amounts = [amount for amount in held if amount]
        self._exceeded = exceeds_limit(sum(amounts), self._most, paused=self._exceeded)
        return find_equal_share(amounts, self._most * RESUME_BELOW) if self._exceeded else inf


def find_equal_share(amounts: Iterable[int], total: float) -> float:
    """Return the largest share at which the amounts, each cut to it, are a total at most; infinite if none is cut."""
    ascending = sorted(amounts)
    left = total
    for place, amount in enumerate(ascending):
        share = left / (len(ascending) - place)
        if amount > share:
            return share
        left -= amount
    return inf


def choose_pause_reason(
    waiting: int, held_bytes: int, *, share: float = inf, window_full: bool, ordered: bool, paused: bool
) -> PauseReason | None:
    """Return why a partition of a source topic must pause, or `None`.

    Parameters:
        waiting: deliveries that wait to be handed off.
        held_bytes: bytes of the records that are held.
        share: the most bytes that the limit of all partitions leaves it.
        ordered: whether deliveries wait for earlier ones: of their key, their partition or a sequence.
        paused: whether the partition has paused.
    """
    if exceeds_limit(waiting, WAITING, paused=paused):
        return PauseReason.KEYS_BUSY if ordered else PauseReason.QUEUE_SATISFIED
    if exceeds_limit(held_bytes, min(HELD_BYTES, share), paused=paused):
        return PauseReason.MEMORY_FULL
    return PauseReason.WINDOW_FULL if window_full else None
