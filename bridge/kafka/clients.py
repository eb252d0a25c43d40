"""The Kafka clients and their librdkafka properties; the only importer of confluent_kafka."""

import logging
import re
import time
from collections.abc import Mapping
from operator import methodcaller
from typing import Any, Final, Self

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Message as Record
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

__all__ = [
    "TIMESTAMP_LOG_APPEND_TIME",
    "AdminClient",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "FatalErrorCatcher",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "Producer",
    "Record",
    "TopicCollection",
    "TopicPartition",
    "admin_client",
    "consumer_client",
    "headers_of",
    "mock_cluster",
    "producer_client",
    "property_fault",
]

logger = logging.getLogger(__name__)


class RepeatFilter(logging.Filter):
    """Lets a line of librdkafka through once a minute: while Kafka is away it repeats itself 20 times a second.

    It has a limit of its own, per connection; but it makes all connections anew when none works (KIP-899).
    """

    _NUMBERS = re.compile(r"\d+")

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line like this one, numbers apart, was not let through in the last minute."""
        if librdkafka.level == logging.DEBUG:
            # Somebody asked for all of it: KAFKA_DEBUG.
            return True
        text = self._NUMBERS.sub("", record.getMessage())
        now = time.monotonic()
        if now - self._last.get(text, -60.0) < 60:
            return False
        if len(self._last) > 1_000:
            self._last.clear()
        self._last[text] = now
        return True


librdkafka = logging.getLogger("bridge.librdkafka")
librdkafka.addFilter(RepeatFilter())

#: What a consumer runs with unless a KAFKA_ variable says otherwise.
CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "auto.offset.reset": "earliest",
    # A killed bridge's partitions come back after this long.
    "session.timeout.ms": 8_000,
    "heartbeat.interval.ms": 2_000,
    # 1000 ms leaves a fast consumer idle two thirds of the time.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32_768,
    # A partition that goes on again is asked for once Kafka has answered for those without records (default: 500).
    "fetch.wait.max.ms": 100,
    # So that a topic made while the bridge runs is consumed within seconds (default: 5 minutes).
    "topic.metadata.refresh.interval.ms": 10_000,
}
#: What the bridge's promises rest on; a KAFKA_ variable for one of these is a fault.
CONSUMER_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    # True is librdkafka's default, and stores an offset when poll() returns it: a loss.
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    # Partitions are taken over and given up one by one: an eager strategy would not take that.
    "partition.assignment.strategy": "cooperative-sticky",
    "allow.auto.create.topics": False,
}
PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "linger.ms": 0,
    "message.timeout.ms": 15_000,
    # The topic's own max.message.bytes is the limit; the client must not refuse what the topic takes.
    "message.max.bytes": 100_000_000,
}
PRODUCER_FIXED: Mapping[str, Any] = {"enable.idempotence": True, "acks": "all"}
FIXED = frozenset(CONSUMER_FIXED) | frozenset(PRODUCER_FIXED) | {"group.id"}
#: Where one client of a kind is given a property of another, librdkafka warns at every start.
_CONSUMER_ONLY = frozenset(CONSUMER_DEFAULTS) | {
    "group.instance.id",
    "max.poll.interval.ms",
    "fetch.min.bytes",
}
_PRODUCER_ONLY = frozenset({"linger.ms", "message.timeout.ms", "compression.type", "compression.codec", "batch.size"})
_UNKNOWN = "celery.kafka.bridge.unknown"


#: Called from C, for only there is it looked at whether an error is pending beside the result. The interpreter's own
#: call does without once the calling code is warm (CPython's specialised calls); then the client's answer for a name
#: that is no UTF-8 is a list with a null pointer in it, and whoever goes over that ends the process.
_ask_headers: Final = methodcaller("headers")


def headers_of(record: Record) -> Any:
    """The headers of a record: pairs, or what `set_headers` has put in their place. Nothing else may ask for them.

    Raises:
        SystemError: one of them cannot be read, so none is. Asked again, the record would not raise: it must not be.
    """
    return _ask_headers(record) or ()


def consumer_client(properties: Mapping[str, Any], group: str, **callbacks: Any) -> Consumer:
    """A consumer that commits only what it is told to.

    Where a group that has committed nothing begins is the bridge's to decide (bridge.consumer.read_position). The
    client
    itself goes to the log's beginning where its position is no longer there: `latest` would pass over all that is.
    """
    _debug(properties)
    taken = {name: value for name, value in properties.items() if name not in _PRODUCER_ONLY}
    return Consumer(
        {
            **CONSUMER_DEFAULTS,
            **taken,
            **CONSUMER_FIXED,
            "auto.offset.reset": "earliest",
            "group.id": group,
            **callbacks,
        },
        logger=librdkafka,
    )


def producer_client(properties: Mapping[str, Any], **callbacks: Any) -> Producer:
    """An idempotent producer that waits for all in-sync replicas.

    It must not cross a fork: librdkafka's threads do not (confluent-kafka-python issue 1122).
    """
    _debug(properties)
    return Producer(
        {**PRODUCER_DEFAULTS, **_shared(properties), **PRODUCER_FIXED, **callbacks},
        logger=librdkafka,
    )


def admin_client(properties: Mapping[str, Any], **callbacks: Any) -> AdminClient:
    """A client that reads metadata and creates topics."""
    _debug(properties)
    return AdminClient({**_shared(properties), **callbacks}, logger=librdkafka)


class FatalErrorCatcher:
    """Catches what a client raises from `poll` or `flush` when it can't go on, which no `except` clause does.

    confluent_kafka raises the KafkaError itself, which is no heir of BaseException (src/confluent_kafka.c, error_cb):
    it would go past every handler of errors there is.

    Attributes:
        error: what was raised; `None` if nothing was.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if not isinstance(error, KafkaError):
            return False
        # What is raised from here would have it as its context.
        self.error = error
        return True


def mock_cluster() -> AdminClient:
    """librdkafka's own mock of a cluster, alive as long as the client that is returned.

    It makes a topic of 4 partitions on first use, and has no CreateTopics
    (librdkafka's src/rdkafka_mock.h).
    """
    return AdminClient({"test.mock.num.brokers": 1, "log_level": 3}, logger=librdkafka)


def property_fault(name: str, value: str) -> str | None:
    """What librdkafka says against a property, or `None` if it takes it.

    No client is made: the second property is refused always, and properties are read in order.

    Returns:
        "unknown" where librdkafka has no such property, else its own sentence.
    """
    try:
        AdminClient({name: value, _UNKNOWN: ""})
    except KafkaException as error:
        text = str(error.args[0].str())
        if _UNKNOWN in text:
            return None
        return "unknown" if "No such configuration property" in text else text
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def client_fault(properties: Mapping[str, Any]) -> str | None:
    """What librdkafka says against these properties together, or `None` if a client can be made of them.

    Some are only looked at then: a mechanism, a certificate's file. Nothing is waited for.
    """
    try:
        admin_client(properties)
    except KafkaException as error:
        return str(error.args[0].str()).rstrip(". ")
    return None


def _debug(properties: Mapping[str, Any]) -> None:
    """With KAFKA_DEBUG all that librdkafka says is shown, whatever the level of the rest."""
    if properties.get("debug"):
        librdkafka.setLevel(logging.DEBUG)


def _shared(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name not in _CONSUMER_ONLY}
