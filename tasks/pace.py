"""What deliveries cost in this process: added up, and told to the ledger a few times a second.

Bridges find the size of batches by it, and how much is handed off ahead. Nothing rests on it, and where the ledger is
silent it is let be.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.times import Cost, Times
from bridge.records.losses import count_in, losses
from tasks import observing

logger = observing.log(__name__)

#: Seconds between two times that a process tells the ledger; and after one that it did not hear.
TELL_EVERY: Final = 0.1
SILENT_FOR: Final = 5.0
#: Seconds from which on a run is slow: batches are small for minutes then, as what is behind such a one waits for it.
SLOW: Final = 0.5


class Laps:
    """What one task's deliveries take, one after another."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self.count = 0
        self.seconds = self.squares = 0.0

    def lap(self, since: float, waited: float = 0.0) -> float:
        """A delivery has ended that was begun at `since` (as `time.monotonic` counts); return when.

        Parameters:
            waited: seconds of that for which Kafka took its dead letter. They count in the mean and not in the spread:
                a worker's first dead letter waits for a connection, and says nothing of what the next message takes.
        """
        now = time.monotonic()
        took = max(0.0, now - since - waited)
        self.count += 1
        self.seconds += took
        self.squares += took * took
        return now

    @property
    def pace(self) -> float:
        """How many deliveries a second takes, as it went so far."""
        return self.count / self.seconds if self.seconds else float("inf")

    def cost(self) -> Cost:
        """All of it, and what the task took besides until now."""
        beside = max(0.0, time.monotonic() - self._begun - self.seconds)
        return Cost(self.count, self.seconds, self.squares, beside)


class _Untold:
    """What a process has measured and not told yet."""

    def __init__(self) -> None:
        self.costs: dict[tuple[Ledger, str], Cost] = {}
        #: Handlers that have run here: the first run also pays for imports and connections.
        self.warm: set[str] = set()
        self.tell_at = 0.0


_of_process: tuple[int, _Untold] | None = None


def note(ledger: Ledger | None, handler: str, cost: Cost) -> None:
    """Note what deliveries to a handler took; the ledger hears of it at once if it has not for a while."""
    if ledger is None or not cost.deliveries:
        return
    untold = _untold()
    if handler not in untold.warm:
        untold.warm.add(handler)
        return
    before = untold.costs.get((ledger, handler), Cost())
    untold.costs[ledger, handler] = Cost(*(a + b for a, b in zip(before, cost, strict=True)))
    if time.monotonic() >= untold.tell_at:
        _tell(untold)


def lost(ledger: Ledger | None, handler: str) -> None:
    """Note that a process or a worker was lost with one of a handler's messages."""
    if ledger is not None:
        _attempt(_untold(), ledger, handler, Cost(), lost=True)


def ran(ledger: Ledger | None, handler: str, seconds: float) -> None:
    """Note that a handler's run took so long, if that is slow; the first in a process also pays for imports."""
    if ledger is None or seconds < SLOW:
        return
    untold = _untold()
    if handler in untold.warm:
        _attempt(untold, ledger, handler, Cost(), slow=True)


def follows_new_loss(headers: Mapping[str, Any]) -> bool:
    """Whether it has cost one since it was last sent again by a run that came to its end."""
    return losses(headers) > count_in(headers, NOTED)


#: The header of a message that is sent again: how many of its losses are noted.
NOTED: Final = "losses_noted"


def _untold() -> _Untold:
    # What this process inherited by a fork is the other's to tell.
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), _Untold())
    return _of_process[1]


def _tell(untold: _Untold) -> None:
    untold.tell_at = time.monotonic() + TELL_EVERY
    costs, untold.costs = untold.costs, {}
    for (ledger, handler), cost in costs.items():
        _attempt(untold, ledger, handler, cost)


def _attempt(
    untold: _Untold, ledger: Ledger, handler: str, cost: Cost, *, lost: bool = False, slow: bool = False
) -> None:
    try:
        Times(ledger).report(handler, cost, lost=lost, slow=slow)
    except LedgerUnavailable as error:
        logger.debug("%s", error)
        untold.tell_at = time.monotonic() + SILENT_FOR
