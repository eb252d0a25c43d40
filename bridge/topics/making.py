"""Makes topics of ours: for dead letters (partitions as the source, kept without end), and for decisions."""

import logging
from typing import Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import AdminClient, ConfigResource, KafkaError, KafkaException, NewTopic

logger = logging.getLogger(__name__)

#: Seconds for one question to Kafka.
ANSWER_WITHIN: Final = 5.0
#: A dead letter is dropped by nobody but a person: not after a time, and not because another has its key.
KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
#: How much larger than its source a dead letter may be: our headers, cut as bridge.records.failure says.
HEADROOM: Final = 65_536
#: The largest record that a topic takes where nothing else is said, in bytes (Kafka's message.max.bytes).
USUAL: Final = 1_048_588


def make_dead_letters(admin: AdminClient, name: str, source: str, partitions: int) -> None:
    """Make the topic; one that may not be made is said, and left to a person.

    Raises:
        KafkaUnavailable: Kafka did not answer, and may do so later.
    """
    config = {**KEPT, "max.message.bytes": str(_largest(admin, source) + HEADROOM)}
    if _made(admin, NewTopic(name, num_partitions=partitions, config=config), "dead letters wait until it is there"):
        logger.info(
            "topic %r made, with %d partitions; its dead letters are kept without end (retention.ms=-1).",
            name,
            partitions,
        )


def make_control(admin: AdminClient, name: str) -> None:
    """Make the topic that has what was decided for the group: one partition, of each key the last record is kept.

    Raises:
        KafkaUnavailable: Kafka did not answer, and may do so later.
    """
    config = {"cleanup.policy": "compact"}
    what = "with cleanup.policy=compact and one partition; until then what is decided is in Redis alone"
    if _made(admin, NewTopic(name, num_partitions=1, config=config), what):
        logger.info("topic %r made: it has what is decided for the group (halts, policies).", name)


def _made(admin: AdminClient, topic: NewTopic, until: str) -> bool:
    try:
        admin.create_topics([topic], request_timeout=ANSWER_WITHIN)[topic.topic].result(ANSWER_WITHIN * 2)
    except KafkaException as error:
        _refused(topic.topic, error.args[0], until)
        return False
    except TimeoutError:
        raise KafkaUnavailable(f"Kafka did not answer when topic {topic.topic!r} was to be made.") from None
    return True


def made_on_first_use(name: str) -> None:
    """Say that a Kafka without CreateTopics makes it."""
    logger.info("this Kafka makes topics on first use: %r is left to it.", name)


def _largest(admin: AdminClient, source: str) -> int:
    """The largest record that the source takes, in bytes (Kafka's default where it does not tell)."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, source)
    try:
        (future,) = admin.describe_configs([resource], request_timeout=ANSWER_WITHIN).values()
        return int(future.result(ANSWER_WITHIN)["max.message.bytes"].value)
    except (KafkaException, TimeoutError, KeyError, TypeError, ValueError):
        return USUAL


def _refused(name: str, error: KafkaError, until: str) -> None:
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return
    if error.code() in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
        made_on_first_use(name)
        return
    if error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
        raise KafkaUnavailable(f"topic {name!r} could not be made: {error.str()}.")
    logger.error("topic %r could not be made: %s. Make it by hand; %s.", name, error.str(), until)
