"""What handlers need, as a bridge sees it: gates brought in line with what is known, and handlers that wait.

Any bridge of the group does it, and each of them: what one has begun and not ended another ends within a second.
"""

import logging
from collections.abc import Mapping
from typing import Any

from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.ledger import Ledger
from bridge.ledger.breakers import Breakers, Known, bring_in_line
from bridge.metrics import BridgeMetrics
from bridge.records.gates import needs_gate
from lossless.transport.channel import Channel
from lossless.transport.gates import Gates

logger = logging.getLogger(__name__)


class Needs:
    """The dependencies of a group's handlers.

    Parameters:
        ledger: `None` where there is no Redis for it: then none is ever held to be down.

    Attributes:
        held: the handlers of which nothing is handed off.
    """

    def __init__(
        self, routes: Routes, ledger: Ledger | None, broker: Broker, group: str, metrics: BridgeMetrics
    ) -> None:
        self._routes, self._broker, self._group, self._metrics = routes, broker, group, metrics
        self._breakers = Breakers(ledger) if ledger is not None and routes.terms else None
        self.held: frozenset[str] = frozenset()
        for dependency in routes.terms:
            metrics.breaker_open.labels(dependency).set(0)

    def look(self) -> None:
        """See how each stands, and act on it.

        Raises:
            LedgerUnavailable, HandoffFailed: Redis did not answer; all stays as it was.
        """
        if self._breakers is None:
            return
        known = self._breakers.look(self._routes.terms)
        for dependency, each in known.items():
            self._metrics.breaker_open.labels(dependency).set(0 if each.is_closed else 1)
            if line := each.words(dependency):
                logger.log(*line)
        aside = self._bring_in_line(known)
        down = {name for name, each in known.items() if waits(each, None if aside is None else aside.get(name, 0))}
        self.held = frozenset(handler.name for handler in self._routes if down.intersection(handler.needs))

    def _bring_in_line(self, known: Mapping[str, Known]) -> dict[str, int] | None:
        """How many messages wait for each that is down; `None` where the broker has no gates."""
        with self._broker.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return None
            gates = Gates(channel.bare_client(), channel.keys.prefix)
            for dependency, each in known.items():
                bring_in_line(gates, needs_gate(self._group, dependency), each)
            if all(each.is_closed for each in known.values()):
                return {}
            aside = gates.aside()
            return {dependency: aside.get(needs_gate(self._group, dependency), 0) for dependency in known}


def waits(known: Known, aside: int | None) -> bool:
    """Whether nothing is handed off that needs it (pure).

    As long as nothing is there to try it with, something is handed off.

    Parameters:
        aside: how many messages wait for it in the broker; `None`: it has no gates, and workers put them off.
    """
    if known.state in ("closed", "ramping"):
        return False
    return bool(aside) or (known.allowed == 0 and (aside is None or known.state == "probing"))
