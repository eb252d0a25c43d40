"""The gates of dependencies, kept in line with their circuit breakers, and the handlers that are suspended.

Every bridge of the group does this: if one dies half-way, another finishes within a second. It also opens the gates of
dependencies that no handler names any more (a breaker was renamed or removed), since nothing else would.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.formats.gate_names import again_gate, gated_dependency, needs_gate
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import BreakerStatus, CircuitBreakers, align_gates
from lossless.transport.message_gates import MessageGates

logger = logging.getLogger(__name__)

#: Most messages that wait in Redis for one dependency whose handlers share topics with others that go on.
MOST_ASIDE: Final = 100_000


class SetAsideMessages(NamedTuple):
    """The messages that wait for a dependency in the broker: those that have not failed, and those that have."""

    fresh: int = 0
    again: int = 0


class DependencyGates:
    """The dependencies of a group's handlers.

    Parameters:
        ledger: `None` without Redis: then there are no circuit breakers.

    Attributes:
        suspended: the handlers of which nothing is handed off.
    """

    def __init__(
        self, routes: Routes, ledger: Ledger | None, broker: CeleryBroker, group: str, metrics: BridgeMetrics
    ) -> None:
        self._routes, self._broker, self._group, self._metrics = routes, broker, group, metrics
        self._breakers = None if ledger is None else CircuitBreakers(ledger)
        self.suspended = SuspendedHandlers()
        for dependency in routes.terms:
            metrics.breaker_open.labels(dependency).set(0)

    def update(self) -> None:
        """Read the circuit breakers, and bring gates and suspended handlers in line with them.

        Raises:
            LedgerUnavailable, HandoffFailed: Redis did not answer; all stays as it was.
        """
        if self._breakers is None:
            return
        known = self._breakers.read_statuses(self._routes.terms)
        for dependency, breaker in known.items():
            self._metrics.breaker_open.labels(dependency).set(0 if breaker.is_closed else 1)
            if line := breaker.words(dependency):
                logger.log(*line)
        aside = self._bring_in_line(known)
        down = {
            name for name, breaker in known.items() if must_wait(breaker, None if aside is None else aside[name].fresh)
        }
        full = {name for name in down if aside is None or sum(aside[name]) >= MOST_ASIDE}
        # Parked deliveries have failed before: waiting messages that have failed are tried first.
        parked = {
            name for name, breaker in known.items() if must_wait(breaker, None if aside is None else sum(aside[name]))
        }
        self.suspended = SuspendedHandlers(self._needing(down), self._needing(full), self._needing(parked))

    def _needing(self, dependencies: set[str]) -> frozenset[str]:
        return frozenset(handler.name for handler in self._routes if dependencies.intersection(handler.needs))

    def _bring_in_line(self, known: Mapping[str, BreakerStatus]) -> dict[str, SetAsideMessages] | None:
        """Return how many messages wait for each dependency; `None` if the broker has no gates."""
        with self._broker.gates() as gates:
            if gates is None:
                return None
            shut = gates.shut_names()
            self._open_unnamed(gates, [gate for gate in shut if self._is_unnamed(gate, known)])
            if not shut and all(each.is_closed for each in known.values()):
                return dict.fromkeys(known, SetAsideMessages())
            found = gates.aside()
            aside = {name: self._aside(name, found) for name in known}
            for dependency, each in known.items():
                align_gates(gates, self._group, dependency, each, fresh=aside[dependency].fresh > 0)
            return aside

    def _aside(self, dependency: str, found: Mapping[str, int]) -> SetAsideMessages:
        fresh, again = needs_gate(self._group, dependency), again_gate(self._group, dependency)
        return SetAsideMessages(found.get(fresh, 0), found.get(again, 0))

    def _is_unnamed(self, gate: str, known: Mapping[str, BreakerStatus]) -> bool:
        dependency = gated_dependency(self._group, gate)
        return dependency is not None and dependency not in known

    def _open_unnamed(self, gates: MessageGates, names: list[str]) -> None:
        for name in names:
            gates.open(name)
            logger.warning(
                "gate %s was opened: no handler names its dependency any more; the messages behind it go on.", name
            )


def must_wait(known: BreakerStatus, there: int | None) -> bool:
    """Return whether deliveries that need a dependency must wait in Kafka (pure).

    Some are handed off as long as no message is there for a trial request.

    Parameters:
        there: messages in the broker that are tried before; `None`: it has no gates, and workers postpone them.
    """
    if known.state in ("closed", "ramping"):
        return False
    return bool(there) or (known.allowed == 0 and (there is None or known.state == "probing"))
