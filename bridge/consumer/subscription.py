"""The subscription of a bridge: the source topics, and their retry and replay topics."""

import logging
from collections.abc import Sequence

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.rebalance import RebalanceHandler
from bridge.kafka.clients import Consumer, learn_topics
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Accounts, Ledger
from bridge.ledger.group_members import find_living_sources
from bridge.partitions.assignment import Assignment

logger = logging.getLogger(__name__)


class Subscription:
    """The subscription, renewed when a retry topic was created or deleted; other partitions go on meanwhile."""

    def __init__(
        self,
        consumer: Consumer,
        rebalances: RebalanceHandler,
        sources: Sequence[str],
        catalog: TopicCatalog,
        logs: LogChangeDetector,
        ledger: Ledger | None,
    ) -> None:
        self._consumer, self._rebalances, self._sources = consumer, rebalances, sources
        self._catalog, self._logs, self._ledger = catalog, logs, ledger
        self._subscribed: frozenset[str] | None = None
        self._logged: set[str] = set()

    def refresh(self) -> None:
        """Subscribe to the topics that exist now."""
        wanted = frozenset(self._catalog.waiting)
        if wanted == self._subscribed:
            return
        if self._subscribed is not None and (fault := learn_topics(self._consumer)):
            logger.info("the subscription stays as it was until Kafka lists its topics: %s", fault)
            return
        before, self._subscribed = self._subscribed or frozenset(), wanted
        gone = sorted(before - wanted)
        # While they are still assigned: nothing is known of partitions that were revoked long ago.
        for place, unsettled in self._rebalances.unsettled(gone).items():
            self._logs.report_deleted(place, unsettled.start, unsettled.stop)
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
        was = {account.topic for account in Accounts(self._ledger).list_accounts()}
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


class StrangeRecordCounter:
    """The count of records in retry topics that are no deliveries of this group; each topic is logged once."""

    def __init__(self, assignment: Assignment, metrics: BridgeMetrics, group: str) -> None:
        self._assignment, self._metrics, self._group = assignment, metrics, group
        self._logged: set[str] = set()

    def count_records(self) -> None:
        """Count the records that were read since the last call."""
        for partition in self._assignment.busy_parked:
            if not (number := partition.take_strange_count()):
                continue
            self._metrics.strange.labels(partition.topic).inc(number)
            if partition.topic not in self._logged:
                self._logged.add(partition.topic)
                logger.warning(
                    "%s-%d holds records that are no deliveries of group %r (no headers of ours that can be read, or "
                    "another group's): they are left alone, and counted in bridge_strange_records_total.",
                    *partition.place,
                    self._group,
                )
