"""Whether the source record exists that a retry or replay record names: Kafka says where its partition ends."""

from typing import NamedTuple

from bridge.ledger import KnownLog
from bridge.records.place import Place
from bridge.topics.asking import END
from bridge.topics.catalog import Catalog

#: Answers of Kafka's that must agree before a source record is taken for one that never was.
PROOFS = 2


class _Doubt(NamedTuple):
    """How often Kafka has said that there is no such record, and after how many listings of topics that was asked."""

    denied: int
    listings: int


class SourceEnds:
    """Tells source records that exist from those that somebody made up.

    What runs under coordinates that lie above its partition's end would be done before its record exists, and that
    record would never run. Questions are asked beside the loop: until an answer is there, a record waits.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._asking = catalog, catalog.asking()
        self._ends: dict[Place, int] = {}
        self._doubts: dict[tuple[Place, int], _Doubt] = {}
        #: What the question that is asked now can decide: it was in doubt before.
        self._asked: frozenset[tuple[Place, int]] = frozenset()

    def exists(self, place: Place, log_id: str, offset: int) -> bool | None:
        """Return whether the source has, or had, a record at an offset; `None` while Kafka has not said so.

        Parameters:
            log_id: the log that the offset is of; of one that is gone nothing can be hidden.
        """
        topic, partition = place
        if KnownLog.of(log_id).topic_id != self._catalog.topic_ids.get(topic) or offset < self._ends.get(place, 0):
            return True
        self._hear()
        if offset < self._ends.get(place, 0):
            self._doubts.pop((place, offset), None)
            return True
        doubt = self._doubts.setdefault((place, offset), _Doubt(0, self._catalog.listings))
        is_missing = partition not in self._catalog.numbers.get(topic, (partition,))
        if doubt.denied >= PROOFS or (is_missing and self._catalog.listings >= doubt.listings + PROOFS):
            del self._doubts[place, offset]
            return False
        if not self._asked:
            self._asked = frozenset(self._doubts)
            self._asking.ask({each: END for each, _ in self._asked})
        return None

    def _hear(self) -> None:
        if (told := self._asking.told()) is None:
            return
        self._ends |= told
        for place, offset in self._asked:
            if place in told and (place, offset) in self._doubts and offset >= told[place]:
                doubt = self._doubts[place, offset]
                self._doubts[place, offset] = doubt._replace(denied=doubt.denied + 1)
        self._asked = frozenset()
