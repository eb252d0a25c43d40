"""Which retry topics there are and may be parked into, as a worker's process knows it; what is missing is made.

A topic that drops its records before they are due, by age or because another has its key, is not parked into.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.kafka.clients import AdminClient, admin_client
from bridge.kafka.managed_topic import ManagedTopic, TopicKind, TopicShape, find_retention_fault
from bridge.kafka.topic_admin import create_topics, read_cluster, read_topic_configs
from bridge.kafka.topic_names import TopicNames, topic_fault
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds for which it is known which topics there are, and how they are configured.
KNOWN_FOR: Final = 60.0
#: Seconds for which a Kafka that did not answer is not asked again: who asks has waited long enough.
SILENT_FOR: Final = 2.0
#: As KNOWN_FOR, for a topic that was just made.
NEW_FOR: Final = 5.0
#: Seconds before a topic that could not be made is tried again.
AGAIN_AFTER: Final = 600.0


class RetryTopics:
    """The retry topics of one process. It must not cross a fork, as its client does not.

    Parameters:
        clock: gives seconds.
    """

    def __init__(self, settings: Settings, clock: Any = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()
        self._known: dict[str, TopicShape] = {}
        self._mock = False
        self._known_at = float("-inf")
        #: When Kafka did not answer, and what was said then.
        self._away: tuple[float, str] | None = None
        #: Why a topic may not be parked into (empty: it may), and when that was looked up.
        self._faults: dict[str, tuple[float, str]] = {}
        self._refused: dict[str, float] = {}
        self._said: set[tuple[str, str]] = set()

    def usable(self, source: str, delays: Iterable[int], group: str) -> tuple[int, ...]:
        """Those of these tiers that may be parked into, ascending; what is missing and may be made is one of them.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        with self._lock:
            self._know()
            named = {delay: self._ours(source, delay, group) for delay in sorted(set(delays))}
            self._look(named.values())
            self._say_faults(named.values())
            return tuple(delay for delay, ours in named.items() if self._is_usable(ours.name))

    def ready(self, source: str, delay: int, group: str) -> str | None:
        """The name of the topic, which is there; `None` if it is not, and could not be made.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        with self._lock:
            self._know()
            ours = self._ours(source, delay, group)
            if not self._is_usable(ours.name):
                return None
            return ours.name if ours.name in self._known or self._make(ours) else None

    def fault(self, source: str, delay: int, group: str) -> str | None:
        """Why nothing may be parked in the topic of a tier, which is made if it is missing; `None`: it may.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        with self._lock:
            self._know()
            ours = self._ours(source, delay, group)
            self._look([ours])
            if ours.name in self._known:
                return self._fault(ours.name) or None
            return None if self._is_usable(ours.name) and self._make(ours) else "it is not there, and was not made"

    def existing(self, source: str, delays: Iterable[int], group: str) -> list[str]:
        """The retry topics of these tiers that there are.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        with self._lock:
            self._know()
            named = (self._ours(source, delay, group).name for delay in delays)
            return [name for name in named if name in self._known]

    def partition(self, name: str, number: int) -> int:
        """The partition for records of the source's partition `number`; -1 where that is the partitioner's to say."""
        shape = self._known.get(name)
        return number % shape.partitions if shape and shape.partitions else -1

    def forget(self) -> None:
        """Look anew: what was known did not hold."""
        self._known_at = float("-inf")

    def _ours(self, source: str, delay: int, group: str) -> ManagedTopic:
        name = TopicNames.of(self._settings.of_group(group)).retry(source, delay)
        return ManagedTopic(name, TopicKind.RETRY, source, delay)

    def _know(self) -> None:
        if self._clock() - self._known_at < KNOWN_FOR:
            return
        if self._away is not None and self._clock() - self._away[0] < SILENT_FOR:
            raise KafkaUnavailable(self._away[1])
        if self._admin is None:
            self._admin = admin_client(self._settings.kafka)
        try:
            found = read_cluster(self._admin)
        except KafkaUnavailable as error:
            self._away = (self._clock(), str(error))
            raise
        self._away = None
        self._mock, self._known = found.is_mock, found.shapes
        self._known_at = self._clock()

    def _is_usable(self, name: str) -> bool:
        if name in self._known:
            return not self._fault(name)
        if topic_fault(name) is not None:
            return False
        # librdkafka's mock of a cluster has no CreateTopics, and makes what is written to.
        makes = self._settings.file.kafka_create_topics or self._mock
        return makes and self._clock() - self._refused.get(name, float("-inf")) >= AGAIN_AFTER

    def _make(self, ours: ManagedTopic) -> bool:
        source = self._known.get(ours.source)
        if self._mock:
            return True
        if self._admin is None or source is None:
            return False
        if not create_topics(self._admin, [ours], {ours.source: source}):
            self._refused[ours.name] = self._clock()
            return False
        self._known[ours.name] = source
        # If another was faster, it may be of another shape, which is seen soon.
        self._known_at = self._clock() - KNOWN_FOR + NEW_FOR
        return True

    def _look(self, topics: Iterable[ManagedTopic]) -> None:
        """Look how those of these topics that there are keep their records, as far as that is not known."""
        now, never = self._clock(), (float("-inf"), "")
        there = [ours for ours in topics if ours.name in self._known]
        unknown = [ours for ours in there if now - self._faults.get(ours.name, never)[0] >= KNOWN_FOR]
        if not unknown or self._mock or self._admin is None:
            return
        # Who may write to a topic may perhaps not see how it keeps what is written: then nothing is known against it.
        found = read_topic_configs(self._admin, [ours.name for ours in unknown])
        for ours in unknown:
            self._faults[ours.name] = (now, find_retention_fault(ours, found.get(ours.name, {})) or "")

    def _fault(self, name: str) -> str:
        return self._faults.get(name, (0.0, ""))[1]

    def _say_faults(self, topics: Iterable[ManagedTopic]) -> None:
        for name in (ours.name for ours in topics if ours.name in self._known):
            if (fault := self._fault(name)) and (name, fault) not in self._said:
                self._said.add((name, fault))
                logger.error("Nothing is parked there, but in the next longer topic, or in Celery: %s", fault)
