"""The retry topics that a worker's process may park deliveries in; missing ones are created.

A topic that drops its records before they are due, by retention or compaction, is not used.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.kafka.clients import AdminClient, admin_client
from bridge.kafka.managed_topic import ManagedTopic, TopicShape, find_retention_fault, make_retry_topic
from bridge.kafka.topic_admin import create_topics, read_cluster, read_topic_configs
from bridge.kafka.topic_names import topic_fault
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds that the list of topics and their configuration are cached.
KNOWN_FOR: Final = 60.0
#: Seconds for which a Kafka that did not answer is not asked again: the caller has waited long enough.
SILENT_FOR: Final = 2.0
#: The same as KNOWN_FOR for a topic that was just created.
NEW_FOR: Final = 5.0
#: Seconds before the creation of a topic is tried again.
AGAIN_AFTER: Final = 600.0


class RetryTopics:
    """The retry topics of one process. It must not cross a fork, as its client does not.

    Parameters:
        clock: returns seconds.
    """

    def __init__(self, settings: Settings, clock: Any = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()
        self._known: dict[str, TopicShape] = {}
        self._mock = False
        self._known_at = float("-inf")
        #: When Kafka did not answer, and its error.
        self._away: tuple[float, str] | None = None
        #: Why a topic is not used (empty: it is), and when that was checked.
        self._faults: dict[str, tuple[float, str]] = {}
        self._refused: dict[str, float] = {}
        self._said: set[tuple[str, str]] = set()

    def usable(self, source: str, delays: Iterable[int], group: str) -> tuple[int, ...]:
        """Return the usable ones of these tiers, ascending, with those that may be created.

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
        """Return the name of the topic, created if necessary; `None` if it is missing and could not be created.

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
        """Return why the topic of a tier, created if missing, cannot be used; `None` if it can.

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
        """Return the existing retry topics of these tiers.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        with self._lock:
            self._know()
            named = (self._ours(source, delay, group).name for delay in delays)
            return [name for name in named if name in self._known]

    def partition(self, name: str, number: int) -> int:
        """Return the partition for records of the source's partition `number`; -1 if the partitioner chooses it."""
        shape = self._known.get(name)
        return number % shape.partitions if shape and shape.partitions else -1

    def forget(self) -> None:
        """Drop the cache, because it was wrong."""
        self._known_at = float("-inf")

    def _ours(self, source: str, delay: int, group: str) -> ManagedTopic:
        return make_retry_topic(self._settings.of_group(group), source, delay)

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
        # librdkafka's mock cluster has no CreateTopics, and creates a topic on the first write.
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
        self._known[ours.name] = ours.shape(source)
        # Another process may have created it with other partitions: check soon.
        self._known_at = self._clock() - KNOWN_FOR + NEW_FOR
        return True

    def _look(self, topics: Iterable[ManagedTopic]) -> None:
        """Read the retention of existing topics that are not cached."""
        now, never = self._clock(), (float("-inf"), "")
        there = [ours for ours in topics if ours.name in self._known]
        unknown = [ours for ours in there if now - self._faults.get(ours.name, never)[0] >= KNOWN_FOR]
        if not unknown or self._mock or self._admin is None:
            return
        # A user who may write to a topic may lack the permission to see its configuration: no fault is known then.
        found = read_topic_configs(self._admin, [ours.name for ours in unknown])
        for ours in unknown:
            self._faults[ours.name] = (now, find_retention_fault(ours, found.get(ours.name, {})) or "")

    def _fault(self, name: str) -> str:
        return self._faults.get(name, (0.0, ""))[1]

    def _say_faults(self, topics: Iterable[ManagedTopic]) -> None:
        for name in (ours.name for ours in topics if ours.name in self._known):
            if (fault := self._fault(name)) and (name, fault) not in self._said:
                self._said.add((name, fault))
                logger.error("Retry topic unused; deliveries go to the next longer one, or wait in Celery: %s", fault)
