"""Which topics there are and where they end; makes those of ours that are missing."""

import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import (
    AdminClient,
    ConfigResource,
    KafkaError,
    KafkaException,
    NewTopic,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
    admin_client,
)
from bridge.settings import Settings
from bridge.topics.names import TopicNames

logger = logging.getLogger(__name__)

#: Seconds for one question to Kafka.
ANSWER_WITHIN: Final = 5.0
_NO_ANSWER: Final = (
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
#: How much larger than its source a dead letter may be: our headers, cut as bridge.records.failure says.
HEADROOM: Final = 65_536


#: A dead letter is dropped by nobody but a person: not after a time, and not because another has its key.
KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}

#: How the ids of librdkafka's mock clusters begin.
MOCK: Final = "mockCluster"


class Catalog:
    """Kafka's metadata for the topics that handlers name.

    Attributes:
        missing: source topics that do not exist (yet).
        cluster: the id of the Kafka cluster.
        topic_ids: per source topic, the id that tells it from one of the same name that was deleted before.
    """

    def __init__(self, settings: Settings, topics: Iterable[str], make: bool = True) -> None:
        self._settings = settings
        self._makes = make and settings.file.kafka_create_topics
        self._topics = tuple(topics)
        self._admin: AdminClient = admin_client(settings.kafka)
        self._prepared: set[str] = set()
        self._named: set[str] = set()
        self._ends: dict[TopicPartition, Future[Any]] = {}
        self._ids: dict[str, Future[Any]] = {}
        self.missing: frozenset[str] = frozenset(topics)
        self.cluster = ""
        self.topic_ids: dict[str, str] = {}

    @property
    def complete(self) -> bool:
        """Whether every source topic exists and has its dead-letter topic."""
        return self._prepared.issuperset(self._topics)

    def prepare(self) -> None:
        """Find the source topics, and make the dead-letter topics that are missing.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        try:
            metadata = self._admin.list_topics(timeout=ANSWER_WITHIN)
        except KafkaException as error:
            raise KafkaUnavailable(f"Kafka does not answer: {error.args[0].str()}.") from None
        known = metadata.topics
        self.cluster = str(metadata.cluster_id)
        found = {name: known[name] for name in self._topics if name in known and known[name].error is None}
        missing = frozenset(self._topics) - found.keys()
        for name in sorted(missing - self._named):
            logger.warning("topic %r does not exist yet: it is consumed as soon as it does.", name)
        for name in sorted(self.missing - missing):
            logger.info("topic %r has %d partitions.", name, len(found[name].partitions))
        self._named = set(missing)
        self.missing = missing
        self._must_identify({name for name in found if name not in self.topic_ids})
        for name, topic in found.items():
            if name not in self._prepared and self._make(name, len(topic.partitions), known):
                self._prepared.add(name)

    def identify(self, topics: Collection[str]) -> dict[str, str]:
        """Ask for the ids of topics; return of which Kafka did not tell it, and why: one that is gone, perhaps."""
        unknown = sorted(topics)
        if not unknown:
            return {}
        if self.cluster.startswith(MOCK):
            # librdkafka's mock has no DescribeTopics (api key 75): it would not answer at all.
            self.topic_ids.update(dict.fromkeys(unknown, ""))
            return {}
        answers = self._admin.describe_topics(TopicCollection(unknown), request_timeout=ANSWER_WITHIN)
        untold = {}
        for name, future in answers.items():
            try:
                self.topic_ids[name] = str(future.result(ANSWER_WITHIN * 2).topic_id)
            except (KafkaException, TimeoutError) as error:
                untold[name] = f"Kafka does not say the id of topic {name!r}: {error}."
        return untold

    def id_of(self, topic: str) -> str:
        """The id of a topic.

        Raises:
            KafkaUnavailable: it is not known yet, and Kafka did not tell.
        """
        if topic not in self.topic_ids:
            self._must_identify({topic})
        return self.topic_ids[topic]

    def _must_identify(self, topics: Collection[str]) -> None:
        for why in self.identify(topics).values():
            raise KafkaUnavailable(why)

    def ask_ids(self, topics: Iterable[str]) -> None:
        """Ask for the ids of topics anew, without waiting for the answer."""
        names = sorted(set(topics))
        if names and not self._ids and not self.cluster.startswith(MOCK):
            asked = self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_WITHIN)
            self._ids = dict(asked)

    def new_ids(self) -> dict[str, str]:
        """The answer to `ask_ids`, if it is there; of a topic that is gone there is none."""
        if not self._ids or not all(future.done() for future in self._ids.values()):
            return {}
        asked, self._ids = self._ids, {}
        told = {name: str(future.result().topic_id) for name, future in asked.items() if not future.exception()}
        self.topic_ids.update(told)
        return told

    def _make(self, source: str, partitions: int, known: Mapping[str, Any]) -> bool:
        name = TopicNames.of(self._settings).dead_letters(source)
        if name in known or not self._makes:
            return True
        if self.cluster.startswith(MOCK):
            logger.info("this Kafka makes topics on first use: %r is left to it.", name)
            return True
        config = {**KEPT, "max.message.bytes": str(self._largest(source) + HEADROOM)}
        topic = NewTopic(name, num_partitions=partitions, config=config)
        try:
            self._admin.create_topics([topic], request_timeout=ANSWER_WITHIN)[name].result(ANSWER_WITHIN * 2)
        except KafkaException as error:
            return self._not_made(name, error.args[0])
        except TimeoutError:
            raise KafkaUnavailable(f"Kafka did not answer when topic {name!r} was to be made.") from None
        logger.info(
            "topic %r made, with %d partitions; its dead letters are kept without end (retention.ms=-1).",
            name,
            partitions,
        )
        return True

    def _largest(self, source: str) -> int:
        """The largest record that the source takes, in bytes (Kafka's default where it does not tell)."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, source)
        try:
            (future,) = self._admin.describe_configs([resource], request_timeout=ANSWER_WITHIN).values()
            return int(future.result(ANSWER_WITHIN)["max.message.bytes"].value)
        except (KafkaException, TimeoutError, KeyError, TypeError, ValueError):
            return 1_048_588

    def _not_made(self, name: str, error: KafkaError) -> bool:
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True
        if error.code() in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
            logger.info("this Kafka makes topics on first use: %r is left to it.", name)
            return True
        if error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise KafkaUnavailable(f"topic {name!r} could not be made: {error.str()}.")
        logger.error(
            "topic %r could not be made: %s. Make it by hand; dead letters wait until it is there.",
            name,
            error.str(),
        )
        return True

    def ask_log(self, topic: str, partition: int) -> tuple[Future[Any], Future[Any]]:
        """Ask where one partition begins and ends, without waiting for the answers (`told`)."""
        place = TopicPartition(topic, partition)
        first, end = (
            self._admin.list_offsets({place: spec}, request_timeout=ANSWER_WITHIN)[place]
            for spec in (_earliest(), _latest())
        )
        return first, end

    def told(self, answer: Future[Any]) -> int:
        """The offset that an answer to `ask_log` holds; it must be there.

        Raises:
            KafkaUnavailable: Kafka did not tell; why.
        """
        error = answer.exception()
        if error is None:
            return int(answer.result().offset)
        self._learn_anew(error.args[0] if isinstance(error, KafkaException) else None)
        raise KafkaUnavailable(f"Kafka does not say where the partition begins and ends: {error}.")

    def ask_ends(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask where these partitions end, without waiting for the answer."""
        latest = {TopicPartition(p.topic, p.partition): _latest() for p in partitions}
        if latest and not self._ends:
            self._ends = dict(self._admin.list_offsets(latest, request_timeout=ANSWER_WITHIN))

    def ends(self) -> dict[tuple[str, int], int] | None:
        """The answers to `ask_ends`: the end offset of each partition; `None` while there is none.

        Raises:
            KafkaUnavailable: Kafka did not answer any of them.
        """
        if not self._ends or not all(future.done() for future in self._ends.values()):
            return None
        asked, self._ends = self._ends, {}
        found = {}
        for partition, future in asked.items():
            error = future.exception()
            if error is None:
                found[(partition.topic, partition.partition)] = int(future.result().offset)
        if found:
            return found
        self._learn_anew(error.args[0] if isinstance(error, KafkaException) else None)
        return None

    def _learn_anew(self, error: KafkaError | None) -> None:
        """After a restart of Kafka this client's metadata may be too old to ask with (FENCED_LEADER_EPOCH)."""
        if error is None or error.code() in _NO_ANSWER:
            raise KafkaUnavailable(f"Kafka does not answer: {error.str() if error else 'no time was left'}.")
        try:
            self._admin.list_topics(timeout=ANSWER_WITHIN)
        except KafkaException as second:
            raise KafkaUnavailable(f"Kafka does not answer: {second.args[0].str()}.") from None


def _earliest() -> OffsetSpec:
    earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return earliest


def _latest() -> OffsetSpec:
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return latest
