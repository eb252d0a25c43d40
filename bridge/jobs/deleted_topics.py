"""The search for retry and replay topics that were deleted, and for deliveries parked in them."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.kafka.partition_offsets import Extent, ExtentReader
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import RETRY_RECORD, Account, Accounts, Fate, Ledger, LogHistory
from bridge.ledger.unsettled_retry_records import count_handed_records
from bridge.settings import Settings
from lossless.background_thread import BackgroundThread, start_thread

logger = logging.getLogger(__name__)

#: Seconds between two searches of a bridge.
DELETED_TOPICS_EVERY: Final = 60.0


class DeletedTopic(NamedTuple):
    """A retry or replay topic that was deleted.

    Attributes:
        at: when that was first seen (Unix time).
        parked: by handler, how many deliveries of its source the ledger calls parked.
        lying: most records in the retry and replay topics of the source, plus those handed off from there (deleted ones
            included) that have not ended.
    """

    topic: str
    source: str
    at: float
    parked: Mapping[str, int]
    lying: int

    @property
    def missing(self) -> int:
        """Return how many deliveries, at least, are parked and in no retry topic."""
        return max(0, sum(self.parked.values()) - self.lying)

    @property
    def whose(self) -> str:
        """Return the handlers with parked deliveries, and how many each has."""
        return ", ".join(f"{handler} ({count:,})" for handler, count in sorted(self.parked.items()))


def find_deleted_topics(settings: Settings, ledger: Ledger, catalog: TopicCatalog) -> Iterator[DeletedTopic]:
    """Yield the deleted topics, each with the deliveries of its source that the ledger still calls parked.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    history = LogHistory(ledger)
    noted, now = history.gone(), time.time()
    absent = {place[0] for place in history.everything() if place[0] not in catalog.waiting}
    counted: dict[str, tuple[dict[str, int], int] | None] = {}
    for topic in sorted({*noted, *absent}):
        if (belongs := catalog.belonging(topic)) is not None:
            if belongs.source not in counted:
                counted[belongs.source] = _count_parked_and_lying(settings, ledger, catalog, belongs.source)
            if (found := counted[belongs.source]) is not None:
                yield DeletedTopic(topic, belongs.source, noted.get(topic, now), *found)


def _count_parked_and_lying(
    settings: Settings, ledger: Ledger, catalog: TopicCatalog, source: str
) -> tuple[dict[str, int], int] | None:
    """Return the parked deliveries of a source, by handler, and most records in its retry and replay topics.

    `None` if Kafka does not list the source (a broker that has just started may list nothing), or cannot read a
    partition: what lies there is not known.

    A delivery that is counted as parked was written before. If its record was committed before the count, it counts as
    handed off; else its record lies between the earlier commit and the later end.
    """
    tiers = [name for name, each in catalog.waiting.items() if each.source == source]
    reader = ExtentReader()
    before = reader.read(settings, tiers)
    committed = {each.place: max(each.first, each.committed or 0) for each in before}
    there = [] if source in catalog.missing else reader.read(settings, [source])
    if not there or reader.unreadable:
        return None

    def ours(topic: str) -> bool:
        return (belongs := catalog.belonging(topic)) is not None and belongs.source == source

    handed = count_handed_records(ledger, ours, before, {name: catalog.id_of(name) for name in tiers})
    parked = _count_parked(ledger, catalog, source, there)
    lag = sum(max(0, each.end - committed.get(each.place, 0)) for each in reader.read(settings, tiers))
    return None if reader.unreadable else (parked, lag + sum(handed.values()))


def _count_parked(ledger: Ledger, catalog: TopicCatalog, source: str, there: Sequence[Extent]) -> dict[str, int]:
    everyone = {account.handler for account in Accounts(ledger).list_accounts() if account.topic == source}
    topic_id, found = catalog.id_of(source), dict.fromkeys(sorted(everyone - {RETRY_RECORD}), 0)
    for extent in there:
        log = LogHistory(ledger).log_id(source, topic_id, extent.partition)
        for handler in found:
            account = Account(handler, source, log, extent.partition)
            found[handler] += ledger.count(account, extent.first, extent.end - 1).fates[Fate.PARKED]
    return {handler: count for handler, count in found.items() if count}


class DeletedTopicSearch:
    """The searches of a bridge, in a thread: Kafka and Redis may be slow.

    Parameters:
        ledger: `None` without Redis: nothing is known to be parked.
    """

    def __init__(self, settings: Settings, ledger: Ledger | None, catalog: TopicCatalog) -> None:
        self._settings, self._ledger, self._catalog = settings, ledger, catalog
        self._thread: BackgroundThread | None = None
        self._logged: set[str] = set()

    def start(self) -> None:
        """Start a search, unless one runs."""
        if (ledger := self._ledger) is not None and (self._thread is None or not self._thread.is_alive()):
            self._thread = start_thread("deleted topics", lambda: self._run(ledger))

    def _run(self, ledger: Ledger) -> None:
        with suppress(KafkaUnavailable, LedgerUnavailable):
            for gone in find_deleted_topics(self._settings, ledger, self._catalog):
                self._take_in(LogHistory(ledger), gone)

    def _take_in(self, history: LogHistory, deleted: DeletedTopic) -> None:
        if deleted.missing:
            history.note_gone(deleted.topic, deleted.at)
            if deleted.topic not in self._logged:
                self._logged.add(deleted.topic)
                logger.error(
                    "topic %r was deleted: of the parked deliveries of %r at least %d are in no retry topic, and do "
                    "not run by themselves (parked: %s). `bridge audit %s` lists them, and tells how to run them.",
                    deleted.topic,
                    deleted.source,
                    deleted.missing,
                    deleted.whose,
                    deleted.source,
                )
        elif deleted.parked:
            # Records there may be of other deliveries, and hide missing ones for now: it is counted again.
            return
        elif deleted.topic in self._catalog.waiting:
            history.found_again(deleted.topic)
        else:
            history.forget(deleted.topic)
