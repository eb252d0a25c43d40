"""The partitions that this bridge has, and where reading each of them begins."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bridge.catalog import Catalog
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.kafka import Consumer, KafkaException, TopicPartition
from bridge.ledger import Account, Fate, Ledger
from bridge.metrics import Place
from bridge.partition import Partition
from bridge.routes import Routes
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds that Kafka may take to say where a partition begins and what is committed.
ANSWER_WITHIN: Final = 5.0


class Assignment:
    """The assigned partitions by topic and number."""

    def __init__(self, settings: Settings, routes: Routes, catalog: Catalog, ledger: Ledger | None) -> None:
        self._settings, self._routes, self._catalog, self._ledger = settings, routes, catalog, ledger
        self._partitions: dict[Place, Partition | None] = {}
        self._asks_ledger = ledger is not None
        #: The committed offset of each, and the first that Kafka had when it was taken over.
        self.committed: dict[Place, int] = {}
        self.low: dict[Place, int] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._partitions

    def __iter__(self) -> Iterator[Place]:
        return iter(self._partitions)

    @property
    def partitions(self) -> list[Partition]:
        """Those of which something was read, or is known to come."""
        return [partition for partition in self._partitions.values() if partition is not None]

    def at(self, place: Place, first: int) -> Partition:
        """The state of a partition; where nothing is known of it yet, it begins at `first`."""
        found = self._partitions[place]
        return self.restart(place, first) if found is None else found

    def add(self, consumer: Consumer, given: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Take partitions over; return them with the offset at which reading them begins.

        What the ledger has as settled, from the committed offset on, is not read again.
        """
        for partition in given:
            self._partitions[(partition.topic, partition.partition)] = None
        try:
            # Anew: a topic that was deleted and made again has another id, and a clean page in the ledger.
            self._catalog.identify({partition.topic for partition in given})
            known = consumer.committed(list(given), timeout=ANSWER_WITHIN)
        except (KafkaException, KafkaUnavailable) as error:
            logger.warning("where to begin is not known yet: %s", error)
            return list(given)
        self._asks_ledger = self._ledger is not None
        return [partition if partition.error else self._begin(consumer, partition) for partition in known]

    def restart(self, place: Place, first: int) -> Partition:
        """Begin a partition anew at an offset: all that is known of it is in Kafka and in the ledger.

        Raises:
            KafkaUnavailable: the topic's id is not known yet.
        """
        topic, number = place
        if topic not in self._catalog.topic_ids:
            self._catalog.identify({topic})
        made = self._partitions[place] = Partition(
            topic,
            number,
            first,
            self._routes.of(topic),
            self._settings.topic(topic),
            self._catalog.topic_ids[topic],
        )
        return made

    def remove(self, places: Iterable[Place]) -> None:
        """Forget partitions that another bridge has now."""
        for place in places:
            self._partitions.pop(place, None)
            self.committed.pop(place, None)
            self.low.pop(place, None)

    def _begin(self, consumer: Consumer, partition: TopicPartition) -> TopicPartition:
        place = (partition.topic, partition.partition)
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_WITHIN)
        except KafkaException as error:
            logger.warning("%s-%d: its ends are not known yet: %s", *place, error.args[0].str())
            return partition
        self.low[place] = low
        first = self._first(place, partition.offset, low, high)
        if partition.offset >= 0:
            self.committed[place] = partition.offset
        start = self._start(self.restart(place, first), low, first, high)
        if start != first:
            self.restart(place, start)
        return TopicPartition(*place, start)

    def _first(self, place: Place, committed: int, low: int, high: int) -> int:
        if committed < 0:
            return high if self._settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end") else low
        if committed < low:
            logger.error(
                "%s-%d: offsets %d to %d are no longer in Kafka (its retention has passed): they were never handled.",
                *place,
                committed,
                low - 1,
            )
        return max(committed, low)

    def join(self, partition: Partition, first: int) -> None:
        """Note from which offset on the handlers are there, if the ledger has lost it.

        Raises:
            LedgerUnavailable: it could not be noted.
        """
        if self._ledger is not None:
            for account in partition.accounts.values():
                self._ledger.join(account, first)

    def _start(self, partition: Partition, low: int, first: int, end: int) -> int:
        """The first offset of which something is left to do: below the committed one, if the ledger went back."""
        place = partition.place
        if self._ledger is None or not self._asks_ledger:
            return first
        try:
            starts = [
                self._start_of(self._ledger, account, partition.offsets.unsafe, low, first, end)
                for account in partition.accounts.values()
            ]
        except LedgerUnavailable as error:
            # Not for each partition anew: rebalances must not take longer than the group allows.
            self._asks_ledger = False
            logger.warning("%s", error)
            return first
        start = min(starts, default=first)
        if start > first:
            logger.info("%s-%d: offsets %d to %d are settled: skipped.", *place, first, start - 1)
        elif start < first:
            logger.warning(
                "%s-%d: the ledger has lost what became of offset %d, below the committed %d: read again from there.",
                *place,
                start,
                first,
            )
        return start

    @staticmethod
    def _start_of(ledger: Ledger, account: Account, unsafe: frozenset[Fate], low: int, first: int, end: int) -> int:
        joined = ledger.join(account, first)
        lost = next(ledger.runs(account, {Fate.OPEN}, max(joined, low), first - 1), None)
        if lost is not None:
            return lost.start
        found = ledger.find(account, unsafe, first, end - 1)
        return end if found is None else found
