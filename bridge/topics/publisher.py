"""Writes dead letters to Kafka; returns after Kafka has acknowledged."""

import os
import threading
import time
from typing import ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable, PublishFailed, RecordTooLarge
from bridge.records import dead_letter
from bridge.records.dead_letter import Whose
from bridge.records.message import Dead, Delivery
from bridge.settings import Settings
from bridge.topics.dead_letters import dead_letters
from bridge.topics.names import TopicNames
from bridge.topics.producer import AcknowledgedProducer

#: How many of the last records of a partition are looked through for a letter that may have just been written.
JUST_WRITTEN: Final = 10_000


class Publisher:
    """A producer of one process, made on first use.

    librdkafka's threads do not cross a fork: a producer that is inherited takes records and never sends
    them (confluent-kafka-python issue 1122), so each process has its own, found by its process id.
    """

    _of_process: ClassVar[tuple[int, "Publisher"] | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, chosen: Settings) -> None:
        self._settings = chosen
        self._producer = AcknowledgedProducer(chosen)
        self._letters: dict[tuple[str, str, int], tuple[float, set[Whose]]] = {}

    @classmethod
    def of(cls, app: Celery) -> "Publisher":
        """The publisher of this process, with the settings of that app."""
        with cls._lock:
            if cls._of_process is None or cls._of_process[0] != os.getpid():
                cls._of_process = (os.getpid(), cls(settings.load(app, os.environ)))
            return cls._of_process[1]

    def dead_letter(self, delivery: Delivery, dead: Dead, group: str) -> None:
        """Publish a dead letter and wait until every in-sync replica has it.

        A record too large for the topic goes without its traceback, then without its message.

        Parameters:
            group: the consumer group that handed the delivery off, whatever this process's own environment says.

        Raises:
            PublishFailed: Kafka did not acknowledge it; it may or may not be there.
        """
        chosen = self._settings.of_group(group)
        topic = TopicNames.of(chosen).dead_letters(delivery.message.topic)
        for failure in dead_letter.shorter_and_shorter(dead.failure):
            headers = dead_letter.headers(delivery, Dead(dead.reason, failure), chosen.group)
            try:
                self._producer.publish(topic, delivery, headers)
                return
            except RecordTooLarge as error:
                refused = error
        raise refused

    def has_dead_letter(self, delivery: Delivery, group: str, written_before: float | None = None) -> bool:
        """Whether Kafka has this delivery's dead letter already: a killed process may have written it, and no more.

        Parameters:
            group: the consumer group that handed it off.
            written_before: Unix time; if only an older letter is looked for, what was read since is not read again.

        Raises:
            PublishFailed: Kafka does not tell.
        """
        message = delivery.message
        place = (group, message.topic, message.partition)
        read_at, found = self._letters.get(place, (0.0, set()))
        # A second for clocks that are read in whole seconds.
        if written_before is None or read_at <= written_before + 1:
            read_at = time.time()
            try:
                found = self._recent(group, message.topic, message.partition)
            except KafkaUnavailable as error:
                raise PublishFailed(f"{delivery}: {error}") from None
            self._letters[place] = (read_at, found)
        return any(whose in found for whose in Whose.those_of(delivery))

    def _recent(self, group: str, topic: str, partition: int) -> set[Whose]:
        """Whose the last dead letters for a partition are."""
        read = dead_letters(self._settings.of_group(group), topic, JUST_WRITTEN, partition)
        return {letter.whose for letter in read.letters}
