"""What is parked, came due and was handed off: a Celery message carries it, be its retry topic gone."""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from celery import Celery

from bridge.errors import HandoffFailed
from bridge.handoff.broker import Broker
from bridge.handoff.carriers import Carrier, Which
from bridge.handoff.messages import Messages
from bridge.handoff.parked import Parked, Search
from bridge.ledger import OWN, Account, Fate, Ledger
from bridge.ledger.own import on_the_way
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import extents


class Carried:
    """Looks in the broker for what is parked of a source.

    Parameters:
        catalog: prepared with the source.
        queues: where its handlers' messages are.
    """

    def __init__(
        self, app: Celery, settings: Settings, ledger: Ledger, catalog: Catalog, source: str, queues: Collection[str]
    ) -> None:
        self._app, self._settings, self._ledger = app, settings, ledger
        self._catalog, self._source, self._queues = catalog, source, queues

    def without(self, parked: Parked, search: Search) -> Parked:
        """Leave out what a message carries that will run it.

        Where the messages cannot be listed nothing is left as long as something is handed off of topics that are gone:
        which that is, is not known before it has ended.

        Raises:
            KafkaUnavailable, LedgerUnavailable: one of them does not answer.
        """
        wanted = {
            (account.partition, offset, account.handler): account
            for account, offsets in parked.items()
            for offset in offsets
        }
        if not wanted:
            return parked
        carriers = self._carriers(wanted)
        if carriers is None:
            return {} if self._handed_elsewhere(search) else parked
        for partition, offset, handler in self._to_run(carriers):
            parked[wanted[(partition, offset, handler)]].discard(offset)
        # What was taken meanwhile may have ended, or be parked anew.
        return search.not_found(parked)

    def _carriers(self, wanted: Collection[Which]) -> Mapping[Which, Carrier] | None:
        try:
            with closing(Broker(self._app)) as broker:
                return Messages(broker).carriers(self._queues, self._source, wanted)
        except HandoffFailed:
            return None

    def _to_run(self, carriers: Mapping[Which, Carrier]) -> list[Which]:
        """Those that a worker will not skip, as it does what came straight from its source and is parked."""
        found = {
            which: (Account(OWN, via.topic, via.topic_id, via.partition), via.offset)
            for which, carrier in carriers.items()
            if (via := carrier.via) is not None
        }
        fates = self._ledger.fates_many([(account, offset, offset) for account, offset in found.values()])
        return [which for which, fate in zip(found, fates, strict=True) if fate[0] == Fate.HANDED]

    def _handed_elsewhere(self, search: Search) -> bool:
        """Whether anything is handed off of topics that are gone, or have been made again since."""
        # As if nothing were committed: what is in the topics as they are now was looked for there.
        there = [replace(each, first=0, committed=None) for each in extents(self._settings, search.tiers)]
        return bool(on_the_way(self._ledger, self._is_ours, there, self._catalog.topic_ids))

    def _is_ours(self, topic: str) -> bool:
        return topic != self._source and self._catalog.source_of(topic) == self._source
