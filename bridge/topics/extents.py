"""Where the partitions of a topic begin and end, and how far the group has committed, without joining it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import Consumer, KafkaError, KafkaException, TopicPartition, consumer_client
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.cluster import all_topics
from bridge.topics.offset_answers import committed_offset, first_and_end

#: Seconds for one question to Kafka.
ANSWER_WITHIN: Final = 10.0
#: A group's coordinator that has just started, or is just chosen, says so; some seconds later it knows.
PASSING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
)
#: A partition that has just been made, or has another leader now.
MOVING: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
#: Seconds between two questions.
AGAIN_AFTER: Final = 0.3


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition's offsets.

    Attributes:
        first: the first offset that Kafka still has.
        end: one more than the last.
        committed: the group's, or `None` if it has committed nothing.
        epoch: the epoch of the ledger that the commit rests on, or `None` if it was not a bridge that committed.
    """

    topic: str
    partition: int
    first: int
    end: int
    committed: int | None
    epoch: str | None = None

    @property
    def place(self) -> Place:
        """The partition."""
        return (self.topic, self.partition)

    @property
    def lag(self) -> int:
        """Records between the committed offset and the end."""
        return max(0, self.end - max(self.first, self.committed or 0))


def note(epoch: str | None, log: str = "") -> str:
    """What a bridge commits beside an offset: the epoch of the ledger that it rests on, and the log that it is of."""
    return " ".join([*([f"ledger={epoch}"] if epoch else []), *([f"log={log}"] if log else [])])


def epoch_of(noted: str | None) -> str | None:
    """The ledger's epoch in what was committed beside an offset; `None` if it was not a bridge that committed."""
    return _word("ledger", noted)


def log_of(noted: str | None) -> str | None:
    """The id of the log in what was committed beside an offset; `None` if it was not a bridge that committed."""
    return _word("log", noted)


def _word(wanted: str, noted: str | None) -> str | None:
    words = (word.partition("=") for word in (noted or "").split())
    return next((value for name, _, value in words if name == wanted), None)


def extents(settings: Settings, topics: Iterable[str]) -> list[Extent]:
    """The partitions of those topics, in order; a topic that does not exist has none.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    client = consumer_client(settings.kafka, settings.group)
    try:
        known = all_topics(client, ANSWER_WITHIN).topics
        places = [
            TopicPartition(topic, partition)
            for topic in topics
            if topic in known
            for partition in sorted(known[topic].partitions)
        ]
        found = []
        for place in _committed(client, places) if places else []:
            first, end = watermarks(client, place)
            committed = committed_offset(place)
            found.append(Extent(place.topic, place.partition, first, end, committed, epoch_of(place.metadata)))
        return found
    except KafkaException as error:
        raise KafkaUnavailable(f"Kafka does not answer: {error.args[0].str()}.") from None
    finally:
        client.close()


def watermarks(client: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return where a partition begins and ends; one that has just been made, or moved, has no leader for a moment.

    Raises:
        KafkaException: Kafka did not tell.
    """
    give_up = time.monotonic() + ANSWER_WITHIN
    while True:
        try:
            return first_and_end(client.get_watermark_offsets(place, timeout=ANSWER_WITHIN))
        except KafkaException as error:
            if error.args[0].code() not in MOVING or time.monotonic() > give_up:
                raise
        time.sleep(AGAIN_AFTER)


def _committed(client: Consumer, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """What the group has committed; an answer that passes is no answer, and asked for again."""
    give_up = time.monotonic() + ANSWER_WITHIN
    while True:
        try:
            found = client.committed(list(places), timeout=ANSWER_WITHIN)
            refused = next((place.error for place in found if place.error is not None), None)
            if refused is None:
                return found
            raise KafkaException(refused)
        except KafkaException as error:
            if error.args[0].code() not in PASSING or time.monotonic() > give_up:
                raise
        time.sleep(AGAIN_AFTER)
