"""The administration of topics: which ones a cluster has, their configuration, and the creation of those that are
missing, with partitions and replicas as their source.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from bridge.errors import KafkaUnavailable
from bridge.kafka.clients import (
    AdminClient,
    ConfigResource,
    Consumer,
    KafkaError,
    KafkaException,
    NewPartitions,
    NewTopic,
)
from bridge.kafka.managed_topic import ManagedTopic, SourceLimits, TopicKind, TopicShape

#: Seconds for one question to Kafka.
ANSWER_WITHIN: Final = 5.0
#: How the ids of librdkafka's mock clusters begin: it makes topics on first use, and answers fewer questions.
MOCK: Final = "mockCluster"


class Cluster(NamedTuple):
    """What Kafka has told.

    Attributes:
        id: which cluster it is.
        named: each topic of which it has told, with its metadata; one that has an `error` may not be there.
    """

    id: str
    named: Mapping[str, Any]

    @property
    def is_mock(self) -> bool:
        """Whether it is librdkafka's."""
        return self.id.startswith(MOCK)

    @property
    def topics(self) -> dict[str, Any]:
        """The topics that there are."""
        return {name: topic for name, topic in self.named.items() if topic.error is None}

    @property
    def shapes(self) -> dict[str, TopicShape]:
        """The shape of each."""
        return {name: read_shape(topic) for name, topic in self.topics.items()}


def read_cluster(client: AdminClient | Consumer, within: float | None = None) -> Cluster:
    """Ask for all topics: of one that is missing, a broker may make it as it pleases.

    Parameters:
        within: seconds for the answer; as usual if `None`.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    try:
        found = client.list_topics(timeout=ANSWER_WITHIN if within is None else within)
    except KafkaException as error:
        raise KafkaUnavailable(f"Kafka does not answer: {error.args[0].str()}.") from None
    return Cluster(str(found.cluster_id), found.topics)


def read_shape(topic: Any) -> TopicShape:
    """The shape of a topic, of its metadata."""
    parts = topic.partitions.values()
    return TopicShape(len(parts), max((len(part.replicas) for part in parts), default=1))


logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_BY_HAND: Final = "as `bridge topics` says it must be"
#: Partitions that one request may ask for: Kafka's controller refuses all of a request of more than 10,000.
MOST_PARTITIONS: Final = 1_000
_LATER: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


def create_topics(admin: AdminClient, wanted: Sequence[ManagedTopic], sources: Mapping[str, TopicShape]) -> list[str]:
    """Make topics; what may not be made is said, and left to a person.

    Parameters:
        sources: the shape of each one's source.

    Returns:
        the names of those that are there now.

    Raises:
        KafkaUnavailable: Kafka did not answer, and may do so later.
    """
    limits = read_source_limits(admin, {ours.source for ours in wanted})
    topics = [_new_topic(ours, sources[ours.source], limits[ours.source]) for ours in wanted]
    refused: dict[str, KafkaError | None] = {}
    for piece in split_requests(topics, [sources[ours.source].partitions for ours in wanted]):
        refused |= _create(admin, piece)
        if len(piece) > 1:
            # A limit or a policy on the whole request says nothing of one of its topics.
            alone = [topic for topic in piece if _is_of_the_request(refused[topic.topic])]
            for topic in alone:
                refused |= _create(admin, [topic])
    made = []
    for ours in wanted:
        if (why := refused[ours.name]) is None:
            kept = "without end" if ours.retention_ms < 0 else f"for {ours.retention_ms / 86_400_000:.3g} days"
            count = sources[ours.source].partitions
            logger.info(
                "topic %r made for %s, with %d partitions; they are kept %s.", ours.name, ours.what, count, kept
            )
        if why is None or _is_there(ours.name, why, f"{_BY_HAND}: until it is there {ours.without}"):
            made.append(ours.name)
    return made


def create_control_topic(admin: AdminClient, name: str) -> None:
    """Make the topic that has what was decided for the group: one partition, of each key the last record is kept.

    Raises:
        KafkaUnavailable: Kafka did not answer, and may do so later.
    """
    topic = NewTopic(name, num_partitions=1, config=ManagedTopic(name, TopicKind.CONTROL, "").config(SourceLimits()))
    why = _refusal(admin.create_topics([topic], request_timeout=ANSWER_WITHIN)[name])
    if why is None:
        logger.info("topic %r made: it has what is decided for the group (halts, policies).", name)
    else:
        _is_there(name, why, "with cleanup.policy=compact and one partition; until then it is in Redis alone")


def add_partitions(admin: AdminClient, wanted: Iterable[ManagedTopic], sources: Mapping[str, TopicShape]) -> None:
    """Give topics as many partitions as their sources have; what may not be is said, and left to a person."""
    added = {ours.name: sources[ours.source].partitions for ours in wanted}
    if not added:
        return
    answers: dict[str, KafkaError | None] = {}
    for piece in split_requests(list(added.items()), list(added.values())):
        more = [NewPartitions(name, count) for name, count in piece]
        asked = admin.create_partitions(more, request_timeout=ANSWER_WITHIN)
        answers |= {name: _refusal(future) for name, future in asked.items()}
    for name, why in answers.items():
        if why is None:
            logger.info("topic %r has %d partitions now, as its source.", name, added[name])
        else:
            logger.error("topic %r could not be given %d partitions: %s.", name, added[name], why.str())


def split_requests(items: Sequence[Item], partitions: Sequence[int]) -> list[list[Item]]:
    """Divide what is asked of Kafka into requests of at most `MOST_PARTITIONS`; a larger one is alone (pure)."""
    found: list[list[Item]] = []
    room = 0
    for item, count in zip(items, partitions, strict=True):
        if not found or count > room:
            found.append([])
            room = MOST_PARTITIONS
        found[-1].append(item)
        room -= count
    return found


def read_source_limits(admin: AdminClient, sources: Iterable[str]) -> dict[str, SourceLimits]:
    """What each source demands; what is usual where Kafka does not tell."""
    return {name: _limits(config) for name, config in read_topic_configs(admin, sources).items()}


def read_topic_configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configuration of each topic; an empty one where Kafka does not tell."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(set(names))]
    if not resources:
        return {}
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=ANSWER_WITHIN).items():
        try:
            found[resource.name] = {name: str(entry.value) for name, entry in future.result(ANSWER_WITHIN).items()}
        except (KafkaException, TimeoutError):
            found[resource.name] = {}
    return found


def log_made_on_first_use(names: Sequence[str]) -> None:
    """Say that a Kafka without CreateTopics makes them."""
    if names:
        logger.info("this Kafka makes topics on first use: %s are left to it.", ", ".join(map(repr, names)))


def _new_topic(ours: ManagedTopic, source: TopicShape, limits: SourceLimits) -> NewTopic:
    return NewTopic(
        ours.name,
        num_partitions=source.partitions,
        replication_factor=source.replicas,
        config=ours.config(limits),
    )


def _create(admin: AdminClient, topics: Sequence[NewTopic]) -> dict[str, KafkaError | None]:
    """Ask for topics in one request; return why each was refused, `None` if it was made."""
    answers = admin.create_topics(list(topics), request_timeout=ANSWER_WITHIN)
    return {name: _refusal(answer) for name, answer in answers.items()}


def _is_of_the_request(why: KafkaError | None) -> bool:
    return why is not None and why.code() in (KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST)


def _limits(config: Mapping[str, str]) -> SourceLimits:
    largest, in_sync = config.get("max.message.bytes", ""), config.get("min.insync.replicas", "")
    usual = SourceLimits()
    return SourceLimits(
        int(largest) if largest.isdecimal() else usual.largest,
        int(in_sync) if in_sync.isdecimal() else usual.in_sync,
    )


def _refusal(answer: "Future[Any]") -> KafkaError | None:
    """Why something was refused; `None`: it was done."""
    try:
        answer.result(ANSWER_WITHIN * 2)
    except KafkaException as error:
        why: KafkaError = error.args[0]
        return why
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT, "Kafka did not answer")
    return None


def _is_there(name: str, why: KafkaError, by_hand: str) -> bool:
    if why.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return True
    if why.code() in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
        log_made_on_first_use([name])
        return True
    if why.retriable() or why.code() in _LATER:
        raise KafkaUnavailable(f"topic {name!r} could not be made: {why.str()}.")
    logger.error("topic %r could not be made: %s. Make it by hand, %s.", name, why.str(), by_hand)
    return False
