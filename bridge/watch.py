"""Whether Kafka answers, which topics there are, and where partitions end."""

import logging
from collections.abc import Iterable, Mapping

from bridge.catalog import Catalog
from bridge.errors import KafkaUnavailable
from bridge.kafka import KafkaError, TopicPartition
from bridge.metrics import BridgeMetrics, Place

logger = logging.getLogger(__name__)


class Watch:
    """What a running bridge knows of Kafka besides its records.

    Attributes:
        down: why Kafka cannot be reached, a sentence; `None` while it answers. Logged when it changes.
        ends: the end offset of each partition, as last heard.
    """

    def __init__(self, catalog: Catalog, metrics: BridgeMetrics) -> None:
        self._catalog, self._metrics = catalog, metrics
        self.down: str | None = None
        self.ends: dict[Place, int] = {}

    def answers(self) -> None:
        """Kafka has answered something."""
        if self.down:
            logger.info("Kafka answers again.")
        self.down = None

    def silent(self, why: str) -> None:
        """Kafka has not answered."""
        if not self.down:
            logger.error("%s The bridge waits for it.", why)
        self.down = why

    def look_at_topics(self) -> bool:
        """Find the source topics, make those of ours that are missing; return whether Kafka answered."""
        try:
            self._catalog.prepare()
        except KafkaUnavailable as error:
            self.silent(str(error))
            return False
        self.answers()
        return True

    def ask(self, places: Iterable[Place]) -> None:
        """Look for topics that are missing, and ask where partitions end, without waiting for the answer."""
        if not self._catalog.complete or self._catalog.missing:
            self.look_at_topics()
        self._catalog.ask_ends(TopicPartition(*place) for place in places)

    def hear(self, committed: Mapping[Place, int]) -> None:
        """Take in the answer, if it is there, and show how far the committed offsets are behind."""
        try:
            ends = self._catalog.ends()
        except KafkaUnavailable as error:
            self.silent(str(error))
            return
        if ends is None:
            return
        self.answers()
        self.ends.update(ends)
        for place in ends.keys() & committed.keys():
            self._metrics.lag.labels(*place).set(max(0, ends[place] - committed[place]))

    def failed(self, error: KafkaError) -> bool:
        """Take in what librdkafka reports, which goes on by itself after all but fatal errors.

        Returns:
            whether it is worth looking at once.
        """
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.silent(f"Kafka does not answer: {error.str()}.")
            return True
        if error.code() != KafkaError._TRANSPORT:
            logger.warning("Kafka: %s", error.str())
        return False
