"""The topics that a bridge consumes: the sources, and the retry and replay topics of them."""

import logging

from bridge.consumer.rebalance import RebalanceHandler
from bridge.consumer.wiring import ConsumerParts
from bridge.kafka.clients import Consumer
from bridge.ledger import Accounts
from bridge.ledger.group_members import find_living_sources

logger = logging.getLogger(__name__)


class Subscription:
    """Subscribes anew when a tier was made or is gone; what else is assigned goes on meanwhile."""

    def __init__(self, parts: ConsumerParts, consumer: Consumer, rebalances: RebalanceHandler) -> None:
        self._parts, self._consumer, self._rebalances = parts, consumer, rebalances
        self._catalog, self._ledger = parts.before.catalog, parts.ledger
        self._sources = parts.before.routes.topics
        self._subscribed: frozenset[str] | None = None
        self._told: set[str] = set()

    def keep(self) -> None:
        """Consume what there is now."""
        wanted = frozenset(self._catalog.waiting)
        if wanted == self._subscribed:
            return
        before, self._subscribed = self._subscribed or frozenset(), wanted
        gone = sorted(before - wanted)
        # While these are assigned yet: of what was revoked long ago nothing is known any more.
        for place, unsettled in self._rebalances.unsettled(gone).items():
            self._parts.logs.deleted(place, unsettled.start, unsettled.stop)
        self._consumer.subscribe(
            [*self._sources, *sorted(wanted)],
            on_assign=self._rebalances.on_assign,
            on_revoke=self._rebalances.on_revoke,
            on_lost=self._rebalances.on_lost,
        )
        if new := sorted(wanted - before):
            logger.info("what waits in these is handed off when it is due: %s", ", ".join(new))
        if gone:
            logger.warning("these are gone, with what waited in them: %s", ", ".join(gone))

    def tell_strange(self) -> None:
        """Count what lies in retry topics and is nothing of this group's; each topic is named once."""
        for partition in self._parts.assignment.parked:
            if not partition.strange:
                continue
            self._parts.before.metrics.strange.labels(partition.topic).inc(partition.strange)
            partition.strange = 0
            if partition.topic not in self._told:
                self._told.add(partition.topic)
                logger.warning(
                    "%s-%d holds records that are no deliveries of group %r (no headers of ours that can be read, or "
                    "another group's): they are left alone, and counted in bridge_strange_records_total.",
                    *partition.place,
                    self._parts.before.settings.group,
                )

    def tell_orphans(self) -> None:
        """Say which retry topics wait for a handler that there is no more.

        Raises:
            LedgerUnavailable: whose they were is not known.
        """
        new = self._catalog.orphans.keys() - self._told
        if not new or self._ledger is None:
            return
        # Of what another living member handles nothing is left over, whichever application it is.
        others = find_living_sources(self._ledger)
        new = {name for name in new if not others & {name, self._catalog.orphans[name]}}
        if not new:
            return
        # Another application's too have such names: only of what this group consumed is it said.
        was = {account.topic for account in Accounts(self._ledger).everyone()}
        self._told |= new
        for name in sorted(new):
            source = self._catalog.orphans[name]
            if name in was or source in was:
                logger.warning(
                    "topic %r may hold deliveries that wait for their retry, and no handler names its source %r any "
                    "more: they stay there. Start a bridge with a handler of %r; if another application uses the group "
                    "%r, which may only be stopped, give it its own BRIDGE_GROUP, and delete nothing.",
                    name,
                    source,
                    source,
                    self._ledger.group,
                )
