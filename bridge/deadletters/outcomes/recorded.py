"""Whether the recorder has taken in what Kafka has: then a delivery without a new letter has not died."""

import time
from collections.abc import Mapping
from typing import Final

from bridge.deadletters.store import positions
from bridge.deadletters.store.database import Database
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import extents
from bridge.topics.names import TopicNames

#: Seconds between two looks.
LOOK_EVERY: Final = 0.2


class Recorded:
    """How far the dead letters of sources are recorded."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database

    def all_of(self, group: str, source: str, within: float) -> bool:
        """Whether all dead letters of a source that Kafka has now are recorded, before so many seconds are over.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        settings = self._settings.of_group(group)
        topic = TopicNames.of(settings).dead_letters(source)
        ends = {each.partition: each.end for each in extents(settings, [topic])}
        if not any(ends.values()):
            return True
        catalog = Catalog(settings, [topic])
        catalog.prepare()
        give_up = time.monotonic() + within
        while not (found := self._is_past(group, topic, catalog.topic_ids.get(topic, ""), ends)):
            if time.monotonic() > give_up:
                break
            time.sleep(LOOK_EVERY)
        return found

    def _is_past(self, group: str, topic: str, topic_id: str, ends: Mapping[int, int]) -> bool:
        with self._database.reading() as connection:
            known = positions.known(connection, [group, ""], [topic])
        reached = {log.partition: at.next for log, at in known.items() if log.topic_id == topic_id}
        return all(reached.get(partition, 0) >= end for partition, end in ends.items())
