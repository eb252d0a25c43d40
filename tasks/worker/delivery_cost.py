"""The cost of deliveries in this process, in seconds; bridges find the size of batches by it.

It is reported to the ledger often at first, and once a second then.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from bridge.errors import LedgerUnavailable
from bridge.formats.celery_header import count_losses, read_counter
from bridge.ledger import Ledger
from bridge.ledger.handler_costs import DeliveryCost, HandlerCosts
from tasks import logs

logger = logs.harmless_logger(__name__)

#: Seconds between two reports to the ledger: while a handler is in its first so many, by which sizes grow, and then;
#: and after a failed one. The task that reports waits for Redis.
TELL_EVERY: Final = 0.1
FIRST_REPORTS: Final = 20
TELL_EVERY_THEN: Final = 1.0
SILENT_FOR: Final = 5.0
#: Seconds from which on a run is slow: batches are then small for minutes, so that few deliveries wait behind it.
SLOW: Final = 0.5


class DeliveryLaps:
    """The measured times of one task's deliveries."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self.count = 0
        self.seconds = self._waited = 0.0
        #: The times of the runs alone; of those side by side divided by how many ran at once.
        self._ran = self._squares = 0.0
        self._are_divided = False

    def note_run(self, seconds: float) -> None:
        """Note that a run took so long."""
        if not self._are_divided:
            self._ran += seconds
            self._squares += seconds * seconds

    def lap(self, since: float, waited: float = 0.0, count: int = 1) -> float:
        """A delivery has ended that was begun at `since` (as `time.monotonic` counts); return when.

        Parameters:
            count: how many have ended, if they ran together.
            waited: seconds of that for which Kafka took its dead letter. They count in the mean and not in the spread:
                a worker's first dead letter waits for a connection, and says nothing of what the next message takes.
        """
        now = time.monotonic()
        self.count += count
        self.seconds += max(0.0, now - since - waited)
        self._waited += waited
        return now

    def add(self, count: int, seconds: float) -> None:
        """So many deliveries have ended that ran side by side.

        Parameters:
            seconds: of their runs, divided by how many ran at once: what waits for the last of them counts as besides.
        """
        if not self._are_divided:
            self._are_divided, self._ran, self._squares = True, 0.0, 0.0
        self.count += count
        self.seconds += seconds
        self._ran += seconds
        self._squares += seconds * seconds / count

    @property
    def pace(self) -> float:
        """The deliveries per second so far."""
        return self.count / self.seconds if self.seconds else float("inf")

    def cost(self) -> DeliveryCost:
        """Return the cost of all deliveries, and the task's other time until now."""
        beside = max(0.0, time.monotonic() - self._begun - self._ran)
        once = 0.0 if self._are_divided else max(0.0, beside - self._waited)
        return DeliveryCost(self.count, self._ran, self._squares, beside, once)


class _UntoldCosts:
    """The costs that a process has measured and not reported yet."""

    def __init__(self) -> None:
        self.costs: dict[tuple[Ledger, str], DeliveryCost] = {}
        #: How many deliveries of each handler this process runs at once, if that is automatic.
        self.at_once: dict[str, int] = {}
        #: Handlers that have run here: the first run also pays for imports and connections.
        self.warm: set[str] = set()
        #: In how many reports each handler was, when the last one was, and before which time none is tried.
        self.told: dict[str, int] = {}
        self.told_at = self.tell_at = 0.0

    def is_time(self, handler: str) -> bool:
        """Return whether to report now that a handler has more to tell."""
        every = TELL_EVERY if self.told.get(handler, 0) < FIRST_REPORTS else TELL_EVERY_THEN
        return time.monotonic() >= max(self.told_at + every, self.tell_at)


_of_process: tuple[int, _UntoldCosts] | None = None


def note_cost(ledger: Ledger | None, handler: str, cost: DeliveryCost, at_once: int = 0) -> None:
    """Note the cost of deliveries; report it at once if the last report was a while ago.

    Parameters:
        at_once: how many this process runs side by side, if that is automatic; else 0.
    """
    if ledger is None or not cost.deliveries:
        return
    untold = _own_costs()
    if handler not in untold.warm:
        untold.warm.add(handler)
        return
    before = untold.costs.get((ledger, handler), DeliveryCost())
    if at_once:
        untold.at_once[handler] = at_once
    untold.costs[ledger, handler] = DeliveryCost(*(a + b for a, b in zip(before, cost, strict=True)))
    if untold.is_time(handler):
        _report_costs(untold)


def note_lost_process(ledger: Ledger | None, handler: str) -> None:
    """Note that a process or a worker was lost with one of a handler's messages."""
    if ledger is not None:
        _try(_own_costs(), partial(HandlerCosts(ledger).report, handler, DeliveryCost(), lost=True))


def note_slow_run(ledger: Ledger | None, handler: str) -> None:
    """Note that a handler's run was slow (`SLOW`); the first in a process also pays for imports."""
    if ledger is None:
        return
    untold = _own_costs()
    if handler in untold.warm:
        _try(untold, partial(HandlerCosts(ledger).report, handler, DeliveryCost(), slow=True))


def follows_new_loss(headers: Mapping[str, Any]) -> bool:
    """Return whether a message has lost a process or worker since it was last sent again by a run that ended."""
    return count_losses(headers) > read_counter(headers, NOTED_LOSSES)


#: The header of a message that is sent again: how many of its losses are noted.
NOTED_LOSSES: Final = "losses_noted"


def _own_costs() -> _UntoldCosts:
    # Costs inherited by a fork are the parent's to report.
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), _UntoldCosts())
    return _of_process[1]


def _report_costs(untold: _UntoldCosts) -> None:
    untold.told_at = time.monotonic()
    costs, untold.costs = untold.costs, {}
    by_ledger: dict[Ledger, dict[str, DeliveryCost]] = {}
    for (ledger, handler), cost in costs.items():
        by_ledger.setdefault(ledger, {})[handler] = cost
        untold.told[handler] = untold.told.get(handler, 0) + 1
    for ledger, found in by_ledger.items():
        _try(untold, partial(HandlerCosts(ledger).report_all, found, untold.at_once))


def _try(untold: _UntoldCosts, report: Callable[[], None]) -> None:
    try:
        report()
    except LedgerUnavailable as error:
        logger.debug("%s", error)
        untold.tell_at = time.monotonic() + SILENT_FOR
