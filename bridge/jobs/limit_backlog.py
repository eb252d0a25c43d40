"""The limits that handlers share, as a bridge sees them: their metrics, and the handlers whose backlog is long enough.

Deliveries that wait for a limit are in the broker. More of them make nothing faster, so above a number their handlers
are suspended: the rest waits in Kafka, and other handlers of the same partitions go on.
"""

from collections.abc import Mapping
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.suspended_handlers import NO_HANDLERS, SuspendedHandlers
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.limit_state import LimitLedger, LimitStatus

#: The share of `kafka_pause_above` that may wait for a limit: the rest is for the other handlers of the queue.
SHARE: Final = 0.5
#: The share of that below which its handlers go on.
GO_ON_BELOW: Final = 0.75
#: Seconds of starts that may wait in any case, so that none is missed.
LEAST_WAIT: Final = 5.0


class LimitBacklog:
    """The limits of a group's handlers.

    Parameters:
        ledger: `None` without Redis: then there are no limits.
        pause_above: messages in a queue above which its topics are paused.

    Attributes:
        suspended: the handlers of which nothing more is handed off.
    """

    def __init__(self, routes: Routes, ledger: Ledger | None, metrics: BridgeMetrics, pause_above: int) -> None:
        self._most = SHARE * pause_above
        self._routes, self._metrics = routes, metrics
        self._limits = LimitLedger(ledger) if ledger is not None and routes.limits else None
        self._full: frozenset[str] = frozenset()
        self.suspended = NO_HANDLERS

    def update(self) -> None:
        """Read the limits, show them, and decide which handlers are suspended.

        Raises:
            LedgerUnavailable: Redis did not answer; all stays as it was.
        """
        if self._limits is None:
            return
        known = self._limits.read(sorted(self._routes.limits))
        for name, limit in known.items():
            self._metrics.limit_running.labels(name).set(limit.running)
            self._metrics.limit_waiting.labels(name).set(limit.waiting)
            self._metrics.limit_wait_seconds.labels(name).set(limit.wait)
        self._full = find_full_limits(known, self._full, self._most)
        self.suspended = frozenset(
            handler.name for handler in self._routes if handler.limit is not None and handler.limit.name in self._full
        )

    def add_to(self, suspended: SuspendedHandlers) -> SuspendedHandlers:
        """Return the suspended handlers with those whose limit has a long backlog."""
        if not self.suspended:
            return suspended
        down, full, parked = (names | self.suspended for names in suspended[:3])
        limited = self.suspended - suspended.down
        return suspended._replace(down=down, full=full, parked=parked, limited=limited)


def find_full_limits(known: Mapping[str, LimitStatus], full: frozenset[str], most: float) -> frozenset[str]:
    """Return the limits for which as many deliveries wait as may (pure).

    Parameters:
        full: the same at the last look.
        most: how many may wait.
    """
    shares = {name: GO_ON_BELOW if name in full else 1.0 for name in known}
    return frozenset(
        name
        for name, limit in known.items()
        if limit.waiting > shares[name] * most and limit.wait > shares[name] * LEAST_WAIT
    )
