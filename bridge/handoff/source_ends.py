"""Whether the source record exists that a retry or replay record names: Kafka says where its partition ends."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from bridge.errors import LedgerUnavailable
from bridge.ledger import KnownLog
from bridge.records.place import Place
from bridge.topics.asking import END
from bridge.topics.catalog import Catalog

logger = logging.getLogger(__name__)

#: Answers of Kafka's that must agree before a source record is taken for one that never was.
PROOFS = 2


class _Source(NamedTuple):
    """A source record as a retry or replay record names it."""

    place: Place
    log_id: str
    offset: int


class _Doubt(NamedTuple):
    """How often Kafka has said that there is no such record, and after how many listings of topics that was asked."""

    denied: int
    listings: int


class SourceEnds:
    """Tells source records that exist from those that somebody made up.

    What runs under coordinates that lie above its partition's end would be done before its record exists, and that
    record would never run. Questions are asked beside the loop: until an answer is there, a record waits.
    """

    def __init__(self, catalog: Catalog, known: Callable[[Collection[Place]], Mapping[Place, KnownLog]]) -> None:
        self._catalog, self._asking, self._known = catalog, catalog.asking(), known
        #: The end of each partition, and the log that it is of: a truncated log ends lower.
        self._ends: dict[Place, tuple[str, int]] = {}
        self._logs: dict[Place, KnownLog] = {}
        self._doubts: dict[_Source, _Doubt] = {}
        #: What the question that is asked now can decide: it was in doubt before.
        self._asked: frozenset[_Source] = frozenset()

    def exists(self, place: Place, log_id: str, offset: int) -> bool | None:
        """Return whether the source has, or had, a record at an offset; `None` while Kafka has not said so.

        Parameters:
            log_id: the log that the offset is of; of one that is gone, or was truncated, nothing can be hidden.
        """
        topic, partition = place
        log, source = KnownLog.of(log_id), _Source(place, log_id, offset)
        if log.topic_id != self._catalog.topic_ids.get(topic) or offset < self._end(source):
            return True
        self._hear()
        if offset < self._end(source) or self._is_truncated(place, log):
            self._doubts.pop(source, None)
            return True
        doubt = self._doubts.setdefault(source, _Doubt(0, self._catalog.listings))
        is_missing = partition not in self._catalog.numbers.get(topic, (partition,))
        if doubt.denied >= PROOFS or (is_missing and self._catalog.listings >= doubt.listings + PROOFS):
            del self._doubts[source]
            return False
        if not self._asked:
            self._asked = frozenset(self._doubts)
            self._asking.ask({each.place: END for each in self._asked})
        return None

    def _end(self, source: _Source) -> int:
        log_id, end = self._ends.get(source.place, ("", 0))
        return end if log_id == source.log_id else 0

    def _is_truncated(self, place: Place, log: KnownLog) -> bool:
        """Return whether the log lost its end since: other records lie at its offsets, with accounts of their own."""
        known = self._logs.get(place)
        return known is not None and known.topic_id == log.topic_id and log.turn < known.turn

    def _knows_log(self, source: _Source) -> bool:
        known = self._logs.get(source.place)
        return known is not None and known.topic_id == KnownLog.of(source.log_id).topic_id

    def _hear(self) -> None:
        if (told := self._asking.told()) is None:
            return
        asked, self._asked = self._asked, frozenset()
        try:
            self._logs |= self._known({source.place for source in asked})
        except LedgerUnavailable as error:
            logger.debug("%s", error)
            return
        for source in asked:
            # While nobody knows the log, as after a wipe of Redis, it may have been truncated: nothing is denied.
            if source.place not in told or source not in self._doubts or not self._knows_log(source):
                continue
            end = max(told[source.place], self._end(source))
            self._ends[source.place] = (source.log_id, end)
            if source.offset >= end:
                doubt = self._doubts[source]
                self._doubts[source] = doubt._replace(denied=doubt.denied + 1)
