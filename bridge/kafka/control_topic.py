"""The control topic: the last decision of each key for the group, in one partition of one compacted topic."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from bridge.errors import KafkaUnavailable, PublishFailed
from bridge.formats.group_decision import (
    GroupDecision,
    PublishedDecision,
    choose_newest_decision,
    read_decision,
)
from bridge.formats.untrusted_json import log_skipped_once
from bridge.kafka.clients import (
    Consumer,
    FatalErrorCatcher,
    KafkaError,
    KafkaException,
    Record,
    TopicPartition,
    admin_client,
    consumer_client,
    explain_error,
    producer_client,
)
from bridge.kafka.partition_offsets import cached_first_and_end, watermarks
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_admin import create_control_topic, read_cluster
from bridge.kafka.topic_names import TopicNames
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: All decisions are in one partition, so that their offsets tell which is the newest.
PARTITION: Final = 0
#: Seconds to wait for Kafka's acknowledgement of a decision.
ACKNOWLEDGED_WITHIN: Final = 10.0
#: Seconds to wait until Kafka lists a topic that was created.
LISTED_WITHIN: Final = 3.0
#: Seconds for which the topic must end below what was read of it before it counts as recreated.
SHORT_FOR: Final = 5.0


def ensure_control_topic(settings: Settings, topics: Iterable[str] = ()) -> bool:
    """Create the topic if it is missing and may be created; return whether it exists, or is created on first use.

    Parameters:
        topics: the group's source topics, as far as they are known here.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    name, admin = TopicNames.from_settings(settings).control, admin_client(settings.kafka)
    cluster = read_cluster(admin)
    # librdkafka's mock has no CreateTopics, and creates a topic on first use.
    if name in cluster.topics or cluster.is_mock:
        return True
    if not settings.file.kafka_create_topics:
        return False
    shapes = cluster.shapes
    create_control_topic(admin, name, {topic: shapes[topic] for topic in topics if topic in shapes})
    # A broker may list a new topic some moments after its controller has created it.
    until = time.monotonic() + LISTED_WITHIN
    while name not in read_cluster(admin).named:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def publish_decision(settings: Settings, decision: GroupDecision) -> int:
    """Write a decision, wait until every in-sync replica has it, and return its offset.

    Raises:
        KafkaUnavailable: Kafka did not answer.
        PublishFailed: Kafka did not acknowledge it; the decision may or may not be there.
    """
    name = TopicNames.from_settings(settings).control
    if not ensure_control_topic(settings):
        raise PublishFailed(
            f"{decision.key}: there is no topic {name!r}, and it was not created here (kafka_create_topics, or Kafka "
            "refused it): run `bridge topics --create`, or create it by hand, with cleanup.policy=compact and one "
            "partition."
        )
    outcome: list[tuple[KafkaError | None, int]] = []

    def acknowledged(error: KafkaError | None, record: Record) -> None:
        outcome.append((error, record.offset() or 0))

    # One producer for one record: decisions are rare, and a client cannot be used after a fatal error.
    client = producer_client({**settings.kafka, "message.timeout.ms": str(int(ACKNOWLEDGED_WITHIN * 900))})
    try:
        client.produce(name, decision.to_value(), decision.key, PARTITION, on_delivery=acknowledged)
        with FatalErrorCatcher():
            client.flush(ACKNOWLEDGED_WITHIN)
    except (KafkaException, SystemError) as error:
        raise PublishFailed(f"{decision.key}: {name!r} did not take it: {explain_error(error)}.") from None
    if not outcome:
        raise PublishFailed(f"{decision.key}: no answer from Kafka for {name!r} in {ACKNOWLEDGED_WITHIN:g} s.")
    refusal, offset = outcome[-1]
    if refusal is not None:
        raise PublishFailed(f"{decision.key}: {name!r} did not take it: {explain_error(refusal)}.")
    return offset


class PublishedDecisions(NamedTuple):
    """The decisions in Kafka when it was read.

    Attributes:
        standing: by key.
        end: the end of the topic; 0 if it does not exist.
    """

    standing: dict[str, PublishedDecision]
    end: int = 0


def read_published_decisions(settings: Settings) -> PublishedDecisions:
    """Return the decisions in the topic, read to its end.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    place = (TopicNames.from_settings(settings).control, PARTITION)
    client = consumer_client(settings.kafka, f"{settings.group}.control")
    try:
        if place[0] not in read_cluster(client).topics:
            return PublishedDecisions({})
        first, end = watermarks(client, TopicPartition(*place))
    except KafkaException as error:
        raise KafkaUnavailable(
            f"Kafka did not give the control topic {place[0]!r}, which has the group's decisions (halts, policies): "
            f"{explain_error(error)}. Is its broker down?"
        ) from None
    finally:
        client.close()
    return PublishedDecisions(find_last_decisions(read_records(settings, {place: first}, {place: end})), end)


def find_last_decisions(found: Iterable[Record]) -> dict[str, PublishedDecision]:
    """Return the last decision of each key among some records."""
    last: dict[str, PublishedDecision] = {}
    for record in found:
        standing = read_decision_record(record)
        if standing is not None and (kept := choose_newest_decision(last.get(standing.decision.key), standing)):
            last[standing.decision.key] = kept
    return last


def read_decision_record(record: Record) -> PublishedDecision | None:
    """Return the decision in a record; `None`, logged, if there is none: the decision before it stays in force."""
    key = record.key()
    name = key.decode(errors="surrogateescape") if isinstance(key, bytes) else key
    decision = read_decision(name, record.value()) if name else None
    if decision is None:
        place = f"record {record.offset()} of the control topic {record.topic()!r}"
        log_skipped_once(logger, place, "it holds no decision of this version; the one before it stays in force")
        return None
    return PublishedDecision(decision, record.offset() or 0)


class ControlTopicFollower:
    """A reader of the control topic from its beginning on, a poll at a time.

    Attributes:
        caught_up: whether it has once read to the end of the topic.
        went_back: whether the topic was recreated or truncated since the last poll: it is read from its beginning
            again.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._place = TopicPartition(TopicNames.from_settings(settings).control, PARTITION, 0)
        self._client: Consumer | None = None
        self._next = 0
        self._short_since: float | None = None
        self.caught_up = self.went_back = False

    def poll(self, seconds: float = 0.0) -> list[PublishedDecision]:
        """Return the decisions since the last poll; empty if Kafka does not respond, or has nothing new."""
        client, self.went_back = self._reading(), False
        found = []
        for record in client.consume(500, seconds):
            if record.error() is not None:
                continue
            self.went_back |= (record.offset() or 0) < self._next
            self._next = (record.offset() or 0) + 1
            if (standing := read_decision_record(record)) is not None:
                found.append(standing)
        self._look_at_end(client)
        return found

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _reading(self) -> Consumer:
        if self._client is None:
            # It commits nothing, and takes no part in rebalances.
            self._client = consumer_client(self._settings.kafka, f"{self._settings.group}.control")
            self._client.assign([self._place])
        return self._client

    def _look_at_end(self, client: Consumer) -> None:
        """Compare the position with the end in the last fetch response, without a request."""
        try:
            _, end = cached_first_and_end(client.get_watermark_offsets(self._place, cached=True))
        except KafkaException:
            return
        self.caught_up = self.caught_up or 0 <= end <= self._next
        if not 0 <= end < self._next:
            self._short_since = None
            return
        # A partition that has just changed its leader may report a lower end for a moment.
        if self._short_since is None:
            self._short_since = self._clock()
        if self._clock() - self._short_since > SHORT_FOR:
            self.went_back, self._next, self._short_since = True, 0, None
            client.seek(self._place)
