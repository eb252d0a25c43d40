"""The administration of topics: metadata, configuration, and creation with the partitions and replicas of the
source.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from bridge.errors import KafkaUnavailable
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import (
    AdminClient,
    ConfigResource,
    Consumer,
    KafkaError,
    KafkaException,
    NewPartitions,
    NewTopic,
    explain_error,
)
from bridge.kafka.managed_topic import ManagedTopic, SourceLimits, TopicKind, TopicShape, find_control_shape

#: Seconds for one request to Kafka.
ANSWER_WITHIN: Final = 5.0
#: The prefix of the ids of librdkafka's mock clusters, which create topics on first use and support fewer requests.
MOCK: Final = "mockCluster"


class Cluster(NamedTuple):
    """The metadata of a Kafka cluster.

    Attributes:
        id: the cluster's id.
        named: the metadata of each topic; one with an `error` may not exist.
    """

    id: str
    named: Mapping[str, Any]

    @property
    def is_mock(self) -> bool:
        """Return whether it is librdkafka's mock."""
        return self.id.startswith(MOCK)

    @property
    def topics(self) -> dict[str, Any]:
        """Return the existing topics."""
        return {name: topic for name, topic in self.named.items() if topic.error is None}

    @property
    def shapes(self) -> dict[str, TopicShape]:
        """Return the shape of each existing topic."""
        return {name: read_shape(topic) for name, topic in self.topics.items()}


def read_cluster(client: AdminClient | Consumer, within: float | None = None) -> Cluster:
    """Return the metadata of all topics: a request for a missing topic might create it.

    Parameters:
        client: a consumer has no partitions yet.
        within: seconds for the answer; `None` for the default.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    try:
        metadata = client.list_topics(timeout=ANSWER_WITHIN if within is None else within)
    except KafkaException as error:
        # Take in what librdkafka has reported meanwhile: a login that failed is the reason.
        client.poll(0)
        raise KafkaUnavailable(f"Kafka does not answer: {explain_error(error)}.") from None
    return Cluster(str(metadata.cluster_id), metadata.topics)


def read_shape(topic: Any) -> TopicShape:
    """Return the shape of a topic from its metadata."""
    parts = topic.partitions.values()
    return TopicShape(len(parts), max((len(part.replicas) for part in parts), default=1))


logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_BY_HAND: Final = "as `bridge topics` says it must be"
#: Replicas of partitions in one request: Kafka's controller refuses a request for more than 10,000 partitions, and
#: must answer within `ANSWER_WITHIN`.
MOST_REPLICAS: Final = 1_000
#: Topics in one request: the controller refuses one that makes more than 10,000 records, and each topic makes some ten.
MOST_TOPICS: Final = 100
_LATER: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


def create_topics(admin: AdminClient, wanted: Sequence[ManagedTopic], sources: Mapping[str, TopicShape]) -> list[str]:
    """Create topics; refusals are logged and left to a person.

    Parameters:
        sources: the shape of each one's source.

    Returns:
        the names of those that exist now.

    Raises:
        KafkaUnavailable: Kafka did not answer, but may later.
    """
    limits = read_source_limits(admin, {ours.source for ours in wanted})
    topics = [_new_topic(ours, sources[ours.source], limits[ours.source]) for ours in wanted]
    refused = _create_in_requests(admin, split_requests(topics, _count_replicas(wanted, sources)))
    made = []
    for ours in wanted:
        if ours.name not in refused or _may_answer_later(refused[ours.name]):
            continue
        if (why := refused[ours.name]) is None:
            kept = "without end" if ours.retention_ms < 0 else f"for {ours.retention_ms / 86_400_000:.3g} days"
            count = ours.shape(sources[ours.source]).partitions
            logger.info(
                "topic %r created for %s, with %s; records are kept %s.",
                ours.name,
                ours.what,
                format_count(count, "partition"),
                kept,
            )
        if why is None or _is_there(ours.name, why, f"{_BY_HAND}: until it is there {ours.without}"):
            made.append(ours.name)
    for name, why in refused.items():
        _check_answered(name, why)
    return made


def create_control_topic(admin: AdminClient, name: str, sources: Mapping[str, TopicShape]) -> None:
    """Create the control topic: compacted, with one partition, and as many replicas as the source that has the most.

    Parameters:
        sources: the shapes of the group's existing source topics; without any, the broker's default decides.

    Raises:
        KafkaUnavailable: Kafka did not answer, but may later.
    """
    limits = read_source_limits(admin, sources).values()
    config = ManagedTopic(name, TopicKind.CONTROL, "").config(
        SourceLimits(in_sync=max((limit.in_sync for limit in limits), default=0))
    )
    shape = find_control_shape(sources.values())
    topic = NewTopic(name, shape.partitions, shape.replicas if sources else -1, config=config)
    why = _refusal(admin.create_topics([topic], request_timeout=ANSWER_WITHIN)[name])
    if why is None:
        logger.info("topic %r created: the control topic, with the group's decisions (halts, policies).", name)
    else:
        _is_there(name, why, "with cleanup.policy=compact and one partition; until then decisions are in Redis alone")


def add_partitions(
    admin: AdminClient, wanted: Iterable[ManagedTopic], sources: Mapping[str, TopicShape]
) -> dict[str, int]:
    """Give topics the partitions that they need beside their sources; refusals are logged and left to a person.

    Returns:
        how many partitions each topic has now, without those refused.
    """
    grown = list(wanted)
    added = {ours.name: ours.shape(sources[ours.source]).partitions for ours in grown}
    answers: dict[str, KafkaError | None] = {}
    for piece in split_requests(grown, _count_replicas(grown, sources)):
        more = [NewPartitions(ours.name, added[ours.name]) for ours in piece]
        asked = admin.create_partitions(more, request_timeout=ANSWER_WITHIN)
        answers |= {name: _refusal(future) for name, future in asked.items()}
    for name, why in answers.items():
        if why is None:
            logger.info("topic %r has %s now.", name, format_count(added[name], "partition"))
        else:
            logger.error("topic %r could not be given %d partitions: %s.", name, added[name], explain_error(why))
    return {name: added[name] for name, why in answers.items() if why is None}


def split_requests(items: Sequence[Item], replicas: Sequence[int]) -> list[list[Item]]:
    """Split items into requests of at most `MOST_REPLICAS` and `MOST_TOPICS` (pure).

    A larger item has its own request.
    """
    requests: list[list[Item]] = []
    room = 0
    for item, count in zip(items, replicas, strict=True):
        if not requests or count > room or len(requests[-1]) == MOST_TOPICS:
            requests.append([])
            room = MOST_REPLICAS
        requests[-1].append(item)
        room -= count
    return requests


def read_source_limits(admin: AdminClient, sources: Iterable[str]) -> dict[str, SourceLimits]:
    """Return the limits of each source; the defaults if Kafka does not tell."""
    return {name: _limits(config) for name, config in read_topic_configs(admin, sources).items()}


def read_topic_configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configuration of each topic; empty if Kafka does not tell."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(set(names))]
    if not resources:
        return {}
    configs = {}
    for resource, future in admin.describe_configs(resources, request_timeout=ANSWER_WITHIN).items():
        try:
            configs[resource.name] = {name: str(entry.value) for name, entry in future.result(ANSWER_WITHIN).items()}
        except (KafkaException, TimeoutError):
            configs[resource.name] = {}
    return configs


def log_made_on_first_use(names: Sequence[str]) -> None:
    """Log that this Kafka, without CreateTopics, creates topics on first use."""
    if names:
        logger.info("this Kafka creates topics on first use: %s are left to it.", ", ".join(map(repr, names)))


def _new_topic(ours: ManagedTopic, source: TopicShape, limits: SourceLimits) -> NewTopic:
    return NewTopic(
        ours.name,
        num_partitions=ours.shape(source).partitions,
        replication_factor=ours.shape(source).replicas,
        config=ours.config(limits),
    )


def _count_replicas(wanted: Iterable[ManagedTopic], sources: Mapping[str, TopicShape]) -> list[int]:
    """Return how many replicas of partitions each topic is to have."""
    shapes = [ours.shape(sources[ours.source]) for ours in wanted]
    return [shape.partitions * shape.replicas for shape in shapes]


def _create_in_requests(admin: AdminClient, requests: Sequence[list[NewTopic]]) -> dict[str, KafkaError | None]:
    """Create topics in these requests; return why each was refused, `None` for those that were created.

    Topics that Kafka was not asked for, because it had stopped answering, are left out.
    """
    refused: dict[str, KafkaError | None] = {}
    waiting = [*requests]
    while waiting:
        request = waiting.pop(0)
        answers = _create(admin, request)
        if len(request) > 1:
            # A limit or a policy on the whole request says nothing about one of its topics.
            alone = [topic for topic in request if _is_of_the_request(answers[topic.topic])]
            waiting[:0] = [[topic] for topic in alone]
            answers = {name: why for name, why in answers.items() if not _is_of_the_request(why)}
        refused |= answers
        if answers and all(map(_may_answer_later, answers.values())):
            break
    return refused


def _create(admin: AdminClient, topics: Sequence[NewTopic]) -> dict[str, KafkaError | None]:
    """Create topics in one request; return why each was refused, `None` for those that were created."""
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
    """Return why a request was refused; `None` if it succeeded."""
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
    _check_answered(name, why)
    logger.error("topic %r could not be created: %s. Create it by hand, %s.", name, explain_error(why), by_hand)
    return False


def _may_answer_later(why: KafkaError | None) -> bool:
    return why is not None and (why.retriable() or why.code() in _LATER)


def _check_answered(name: str, why: KafkaError | None) -> None:
    """Raise `KafkaUnavailable` if Kafka did not answer for a topic, but may later."""
    if why is not None and _may_answer_later(why):
        raise KafkaUnavailable(f"topic {name!r} could not be created: {explain_error(why)}.")
