"""Retry topics as whoever parks a delivery finds them: looked at before they are written to.

Kafka's producer asks for the topic that it writes to, and a broker that makes topics by itself would then make it, with
a retention of its own. So it is looked for among all topics, which makes none.
"""

import time
from collections.abc import Callable
from typing import Final

from bridge.errors import KafkaUnavailable, UnfitTopic
from bridge.kafka import AdminClient, KafkaException, admin_client
from bridge.settings import Settings
from bridge.topics.making import ANSWER_WITHIN, MOCK, configs, make, shape_of
from bridge.topics.needed import retry
from bridge.topics.ours import too_short

#: Seconds for which an answer holds: a topic may be deleted, and its retention shortened, while processes run.
KNOWN_FOR: Final = 60.0


class RetryTopics:
    """Which retry topics there are; one that is missing is made where it may be. For one process, and not over a fork.

    Asks Kafka at most once a minute for each tier.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._admin: AdminClient | None = None
        self._known: dict[tuple[str, int], tuple[float, bool]] = {}

    def there(self, source: str, delay: int) -> bool:
        """Whether records of a source may be parked for so many seconds: its topic is there, or was made just now.

        Raises:
            KafkaUnavailable: Kafka does not tell.
            UnfitTopic: the topic would drop records before they are due.
        """
        at, found = self._known.get((source, delay), (0.0, False))
        if not at or self._clock() - at >= KNOWN_FOR:
            found = self._look(source, delay)
            self._known[(source, delay)] = (self._clock(), found)
        return found

    def _look(self, source: str, delay: int) -> bool:
        wanted = retry(self._settings, source, delay)
        self._admin = self._admin or admin_client(self._settings.kafka)
        try:
            metadata = self._admin.list_topics(timeout=ANSWER_WITHIN)
        except KafkaException as error:
            raise KafkaUnavailable(f"Kafka does not answer: {error.args[0].str()}.") from None
        if str(metadata.cluster_id).startswith(MOCK):
            return True
        topics = {name: topic for name, topic in metadata.topics.items() if topic.error is None}
        if wanted.name not in topics:
            if not self._settings.file.kafka_create_topics or source not in topics:
                return False
            return bool(make(self._admin, [wanted], {source: shape_of(topics[source])}))
        if words := too_short(wanted, configs(self._admin, [wanted.name])[wanted.name]):
            raise UnfitTopic(words)
        return True
