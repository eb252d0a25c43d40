"""Transactions that stay open: Kafka gives nobody what lies behind their first record, and no error either."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from bridge.records.place import Place
from bridge.topics.asking import END
from bridge.topics.catalog import Catalog

logger = logging.getLogger(__name__)

#: Seconds for which nothing was read of what lies there, before Kafka is asked whether a transaction holds it back;
#: Kafka ends those whose producer is gone after a minute (transaction.timeout.ms).
HANGS_AFTER: Final = 90.0


class OpenTransactions:
    """Says which partitions a transaction holds back, once for each."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._asking, self._clock = catalog.asking_stable(), clock
        self._since: dict[Place, tuple[int, float]] = {}
        self._told: dict[Place, int] = {}

    def look(self, unread: Mapping[Place, tuple[int, int]]) -> None:
        """Look at the partitions that have more than was read.

        Parameters:
            unread: for each, the next offset that is to be read, and one more than the last that Kafka has.
        """
        now = self._clock()
        self._since = {
            place: (offset, self._since[place][1] if self._since.get(place, (None, 0))[0] == offset else now)
            for place, (offset, _) in unread.items()
        }
        for place, stable in (self._asking.told() or {}).items():
            offset, end = unread.get(place, (-1, -1))
            if stable == offset and self._told.get(place) != offset and self._is_old(place, now):
                self._told[place] = offset
                logger.error(
                    "%s-%d: nothing was read for %.0f s, although Kafka has %d more: a transaction that began at "
                    "offset %d is still open, and holds back all that lies behind it. `kafka-transactions.sh "
                    "find-hanging` names its producer, `kafka-transactions.sh abort` ends it.",
                    *place,
                    now - self._since[place][1],
                    end - offset,
                    offset,
                )
        self._asking.ask({place: END for place in self._since if self._is_old(place, now)})

    def _is_old(self, place: Place, now: float) -> bool:
        return place in self._since and now - self._since[place][1] >= HANGS_AFTER
