"""The subscription of a bridge: the source topics, and their retry and replay topics."""

import logging

from bridge.consumer.rebalance import RebalanceHandler
from bridge.consumer.wiring import ConsumerParts
from bridge.kafka.clients import Consumer
from bridge.ledger import Accounts
from bridge.ledger.group_members import find_living_sources

logger = logging.getLogger(__name__)


class Subscription:
    """The subscription, renewed when a retry topic was created or deleted; other partitions go on meanwhile."""

    def __init__(self, parts: ConsumerParts, consumer: Consumer, rebalances: RebalanceHandler) -> None:
        self._parts, self._consumer, self._rebalances = parts, consumer, rebalances
        self._catalog, self._ledger = parts.setup.catalog, parts.ledger
        self._sources = parts.setup.routes.topics
        self._subscribed: frozenset[str] | None = None
        self._logged: set[str] = set()

    def refresh(self) -> None:
        """Subscribe to the topics that exist now."""
        wanted = frozenset(self._catalog.waiting)
        if wanted == self._subscribed:
            return
        before, self._subscribed = self._subscribed or frozenset(), wanted
        gone = sorted(before - wanted)
        # While they are still assigned: nothing is known of partitions that were revoked long ago.
        for place, unsettled in self._rebalances.unsettled(gone).items():
            self._parts.logs.deleted(place, unsettled.start, unsettled.stop)
        self._consumer.subscribe(
            [*self._sources, *sorted(wanted)],
            on_assign=self._rebalances.on_assign,
            on_revoke=self._rebalances.on_revoke,
            on_lost=self._rebalances.on_lost,
        )
        if new := sorted(wanted - before):
            logger.info("retry topics are consumed: %s", ", ".join(new))
        if gone:
            logger.warning("retry topics were deleted, with the records in them: %s", ", ".join(gone))

    def count_strange(self) -> None:
        """Count the records of retry topics that are no deliveries of this group; log each topic once."""
        for partition in self._parts.assignment.parked:
            if not partition.strange:
                continue
            self._parts.setup.metrics.strange.labels(partition.topic).inc(partition.strange)
            partition.strange = 0
            if partition.topic not in self._logged:
                self._logged.add(partition.topic)
                logger.warning(
                    "%s-%d holds records that are no deliveries of group %r (no headers of ours that can be read, or "
                    "another group's): they are left alone, and counted in bridge_strange_records_total.",
                    *partition.place,
                    self._parts.setup.settings.group,
                )

    def log_orphans(self) -> None:
        """Log the retry topics whose source has no handler any more.

        Raises:
            LedgerUnavailable: their former handlers are not known.
        """
        new = self._catalog.orphans.keys() - self._logged
        if not new or self._ledger is None:
            return
        # A topic that another living member handles is no orphan, whichever application that is.
        others = find_living_sources(self._ledger)
        new = {name for name in new if not others & {name, self._catalog.orphans[name]}}
        if not new:
            return
        # Another application's topics have such names too: log only those that this group consumed.
        was = {account.topic for account in Accounts(self._ledger).everyone()}
        self._logged |= new
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
