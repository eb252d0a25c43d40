"""Retry and replay topics that were deleted while no bridge looked, and what was parked in them."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import RETRY_RECORD, Account, Accounts, Fate, Ledger, LogHistory
from bridge.ledger.retry_records import count_handed_records
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds between two looks of a bridge.
DELETED_TOPICS_EVERY: Final = 60.0


class DeletedTopic(NamedTuple):
    """A topic that is gone.

    Attributes:
        at: when that was seen first (Unix time).
        parked: by handler, how many deliveries of its source the ledger calls parked.
        lying: how many records all retry and replay topics of the source hold at the most, and how many were handed off
            from there, from those that are gone too, and have not ended.
    """

    topic: str
    source: str
    at: float
    parked: Mapping[str, int]
    lying: int

    @property
    def missing(self) -> int:
        """How many deliveries are parked and lie in no retry topic, at least."""
        return max(0, sum(self.parked.values()) - self.lying)

    @property
    def whose(self) -> str:
        """The handlers that have something parked, and how many."""
        return ", ".join(f"{handler} ({count:,})" for handler, count in sorted(self.parked.items()))


def find_deleted_topics(settings: Settings, ledger: Ledger, catalog: TopicCatalog) -> Iterator[DeletedTopic]:
    """The topics that are gone, each with what the ledger still calls parked of its source.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    book = LogHistory(ledger)
    noted, now = book.gone(), time.time()
    absent = {place[0] for place in book.everything() if place[0] not in catalog.waiting}
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
    """What is parked of a source, by handler; and what its retry and replay topics hold at the most.

    `None` where Kafka does not list the source: a broker that has just started may list nothing at all.

    What is parked when it is counted was written before that. What was committed earlier of it was handed off, counts
    as that, and has not ended; all else of it lies between what was committed earlier and the end that is there later.
    """
    tiers = [name for name, each in catalog.waiting.items() if each.source == source]
    before = read_extents(settings, tiers)
    committed = {each.place: max(each.first, each.committed or 0) for each in before}
    there = [] if source in catalog.missing else read_extents(settings, [source])
    if not there:
        return None

    def ours(topic: str) -> bool:
        return (belongs := catalog.belonging(topic)) is not None and belongs.source == source

    handed = count_handed_records(ledger, ours, before, {name: catalog.id_of(name) for name in tiers})
    parked = _count_parked(ledger, catalog, source, there)
    lag = sum(max(0, each.end - committed.get(each.place, 0)) for each in read_extents(settings, tiers))
    return parked, lag + sum(handed.values())


def _count_parked(ledger: Ledger, catalog: TopicCatalog, source: str, there: Sequence[Extent]) -> dict[str, int]:
    everyone = {account.handler for account in Accounts(ledger).everyone() if account.topic == source}
    topic_id, found = catalog.id_of(source), dict.fromkeys(sorted(everyone - {RETRY_RECORD}), 0)
    for extent in there:
        log = LogHistory(ledger).log_id(source, topic_id, extent.partition)
        for handler in found:
            account = Account(handler, source, log, extent.partition)
            found[handler] += ledger.count(account, extent.first, extent.end - 1).fates[Fate.PARKED]
    return {handler: count for handler, count in found.items() if count}


class DeletedTopicSearch:
    """A bridge's looks, beside its loop: Kafka and Redis may take their time.

    Parameters:
        ledger: `None` where there is no Redis for it: nothing is known to be parked.
    """

    def __init__(self, settings: Settings, ledger: Ledger | None, catalog: TopicCatalog) -> None:
        self._settings, self._ledger, self._catalog = settings, ledger, catalog
        self._thread: threading.Thread | None = None
        self._told: set[str] = set()

    def begin(self) -> None:
        """Look, unless a look is under way."""
        if self._ledger is not None and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, args=(self._ledger,), name="gone", daemon=True)
            self._thread.start()

    def _run(self, ledger: Ledger) -> None:
        with suppress(KafkaUnavailable, LedgerUnavailable):
            for gone in find_deleted_topics(self._settings, ledger, self._catalog):
                self._take_in(LogHistory(ledger), gone)

    def _take_in(self, book: LogHistory, gone: DeletedTopic) -> None:
        if gone.missing:
            book.note_gone(gone.topic, gone.at)
            if gone.topic not in self._told:
                self._told.add(gone.topic)
                logger.error(
                    "topic %r was deleted: of what is parked of %r at least %d lie in no retry topic, and do not run "
                    "by themselves (parked: %s). `bridge audit %s` tells which, and how to let them run.",
                    gone.topic,
                    gone.source,
                    gone.missing,
                    gone.whose,
                    gone.source,
                )
        elif gone.parked:
            # What lies there may be anybody's, and hide for now what is missing: it is counted again.
            return
        elif gone.topic in self._catalog.waiting:
            book.found_again(gone.topic)
        else:
            book.forget(gone.topic)
