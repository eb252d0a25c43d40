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

from bridge.kafka.login_errors import concerns_token, explain_login

__all__ = [
    "BROKERS_OWN",
    "CLASSIC",
    "NEW_PROTOCOL",
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
    "explain_error",
    "group_protocol",
    "headers_of",
    "learn_topics",
    "mock_cluster",
    "producer_client",
    "property_fault",
]

logger = logging.getLogger(__name__)

#: Seconds for Kafka's answer to `learn_topics`.
LEARN_WITHIN: Final = 2.0


class RepeatFilter(logging.Filter):
    """A log filter that passes a line of librdkafka once a minute: without Kafka it repeats itself 20 times a second.

    librdkafka's own limit is per connection, but it renews all connections when none works (KIP-899).
    """

    _NUMBERS = re.compile(r"\d+")

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether no line like this one, apart from numbers, passed in the last minute."""
        if librdkafka.level == logging.DEBUG:
            # The user asked for all lines with KAFKA_DEBUG.
            return True
        text = self._NUMBERS.sub("", record.getMessage())
        now = time.monotonic()
        if now - self._last.get(text, -60.0) < 60:
            return False
        if len(self._last) > 1_000:
            self._last.clear()
        self._last[text] = now
        if words := explain_login(record.getMessage()):
            record.msg, record.args = "%s: %s", (record.getMessage(), words)
        return True


librdkafka = logging.getLogger("bridge.librdkafka")
librdkafka.addFilter(RepeatFilter())

#: The two protocols of consumer groups, as `group.protocol` names them; the second is KIP-848's.
CLASSIC: Final = "classic"
NEW_PROTOCOL: Final = "consumer"
#: What the broker decides for a group of the new protocol, by each property that librdkafka refuses then.
BROKERS_OWN: Mapping[str, str] = {
    "session.timeout.ms": "the broker's group.consumer.session.timeout.ms is in force",
    "heartbeat.interval.ms": "the broker's group.consumer.heartbeat.interval.ms is in force",
    "partition.assignment.strategy": "the broker assigns partitions",
    "group.protocol.type": "that protocol has no types",
}
#: The consumer's properties unless a KAFKA_ variable sets them.
CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "auto.offset.reset": "earliest",
    # The partitions of a killed bridge are reassigned after this time.
    "session.timeout.ms": 8_000,
    "heartbeat.interval.ms": 2_000,
    # 1000 ms leaves a fast consumer idle two thirds of the time.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32_768,
    # A resumed partition is fetched once Kafka has answered for those without records (default: 500).
    "fetch.wait.max.ms": 100,
    # A topic created while the bridge runs is consumed within seconds (default: 5 minutes).
    "topic.metadata.refresh.interval.ms": 10_000,
}
#: Properties that the bridge's guarantees need; setting one with a KAFKA_ variable is an error.
CONSUMER_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    # True is librdkafka's default, and stores an offset when poll() returns it: records would be lost.
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    # Partitions are assigned and revoked one by one; an eager strategy reassigns all at once.
    "partition.assignment.strategy": "cooperative-sticky",
    "allow.auto.create.topics": False,
}
PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "linger.ms": 0,
    "message.timeout.ms": 15_000,
    # The topic's own max.message.bytes is the limit; the client must not refuse a record that the topic takes.
    "message.max.bytes": 100_000_000,
}
PRODUCER_FIXED: Mapping[str, Any] = {"enable.idempotence": True, "acks": "all"}
FIXED = frozenset(CONSUMER_FIXED) | frozenset(PRODUCER_FIXED) | {"group.id"}
#: librdkafka warns at every start if a client gets a property of another kind of client.
_CONSUMER_ONLY = frozenset(CONSUMER_DEFAULTS) | {
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "max.poll.interval.ms",
    "fetch.min.bytes",
}
_PRODUCER_ONLY = frozenset({"linger.ms", "message.timeout.ms", "compression.type", "compression.codec", "batch.size"})
#: confluent-kafka's property for the tokens of a login; ours holds an OAuthTokenSource (bridge.settings.oauth_token).
OAUTH_CB: Final = "oauth_cb"
_UNKNOWN = "celery.kafka.bridge.unknown"


#: Called from C, because only there a pending error is noticed. The interpreter's specialised calls skip the check
#: once the code is warm: a name that is not UTF-8 then gives a list with a null pointer, and reading it ends the
#: process.
_ask_headers: Final = methodcaller("headers")


def headers_of(record: Record) -> Any:
    """Return the headers of a record, or the value that `set_headers` put in their place. Use nothing else to read
    them.

    Raises:
        SystemError: a header cannot be read. Do not ask the record again: it would not raise a second time.
    """
    return _ask_headers(record) or ()


def consumer_client(properties: Mapping[str, Any], group: str, **callbacks: Any) -> Consumer:
    """Return a consumer that commits only on request.

    The bridge decides where a group without commits begins (bridge.consumer.read_position). If the client's own
    position is gone it restarts at the log's beginning: `latest` would skip all existing records.
    """
    _debug(properties)
    taken = _with_login({name: value for name, value in properties.items() if name not in _PRODUCER_ONLY})
    chosen = {**CONSUMER_DEFAULTS, **taken, **CONSUMER_FIXED, "auto.offset.reset": "earliest", "group.id": group}
    if group_protocol(properties) == NEW_PROTOCOL:
        chosen = {name: value for name, value in chosen.items() if name not in BROKERS_OWN}
    return Consumer({**chosen, **login_errors.watch(callbacks)}, logger=librdkafka)


def group_protocol(properties: Mapping[str, Any]) -> str:
    """Return the protocol of consumer groups that these properties choose.

    >>> group_protocol({}), group_protocol({"group.protocol": "CONSUMER"})
    ('classic', 'consumer')
    """
    return str(properties.get("group.protocol", CLASSIC)).lower()


def learn_topics(consumer: Consumer) -> str:
    """Have a consumer's client know all topics, as it must before its subscription is modified.

    If it must ask for one while it joins the group again without a member id, as after a freeze, librdkafka aborts the
    process: an assertion in rd_kafka_cgrp_modify_subscription (rdkafka_cgrp.c) forgets that state.

    Returns:
        why Kafka did not list them; empty if it did.
    """
    try:
        consumer.list_topics(timeout=LEARN_WITHIN)
    except KafkaException as error:
        return explain_error(error)
    return ""


def producer_client(properties: Mapping[str, Any], **callbacks: Any) -> Producer:
    """Return an idempotent producer that waits for all in-sync replicas.

    It must not cross a fork, as librdkafka's threads do not (confluent-kafka-python issue 1122).
    """
    _debug(properties)
    return Producer(
        {**PRODUCER_DEFAULTS, **_with_login(_shared(properties)), **PRODUCER_FIXED, **callbacks},
        logger=librdkafka,
    )


def admin_client(properties: Mapping[str, Any], **callbacks: Any) -> AdminClient:
    """Return a client that reads metadata and creates topics."""
    _debug(properties)
    return AdminClient({**_with_login(_shared(properties)), **login_errors.watch(callbacks)}, logger=librdkafka)


#: What librdkafka adds to an error, and what differs each time.
_AFTER: Final = re.compile(r" \(after \d+ms in state \w+[^)]*\)")
#: Errors that do not say why there is no answer.
_NO_ANSWER: Final = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


class LoginErrors:
    """The last login error of the clients of this process: their other errors do not say why Kafka does not answer."""

    #: Seconds for which an error explains others.
    LASTS: Final = 30.0

    def __init__(self) -> None:
        self._words, self._until = "", 0.0
        self._token_fault, self._token_until = "", 0.0

    @property
    def words(self) -> str:
        """Return the error in words; empty if there was none for a while."""
        return self.token_fault or (self._words if time.monotonic() < self._until else "")

    @property
    def token_fault(self) -> str:
        """Return why KAFKA_OAUTH_CB gave no token, without a full stop; empty: it gave one, or is not asked."""
        return self._token_fault if time.monotonic() < self._token_until else ""

    def note_token(self, fault: str = "") -> None:
        """Note why no client has a token; empty: they have."""
        self._token_fault, self._token_until = fault.rstrip(". "), time.monotonic() + self.LASTS

    def explains(self, text: str) -> bool:
        """Return whether an error in words is one of a login: neither Kafka nor its address is at fault."""
        return bool(explain_login(text)) or bool(self.token_fault and self.token_fault in text)

    def watch(self, callbacks: Mapping[str, Any]) -> dict[str, Any]:
        """Return the callbacks of a client with one that also notes its login errors."""
        given = callbacks.get("error_cb")

        def note(error: KafkaError) -> None:
            if explain_login(error.str()):
                self._words, self._until = explain_error(error), time.monotonic() + self.LASTS
            if given is not None:
                given(error)

        return {**callbacks, "error_cb": note}


login_errors = LoginErrors()


#: The reason of a partition that nobody can read or write.
NO_LEADER: Final = "the partition has no leader"
#: Errors that operators see while Kafka starts, or moves work between brokers, in words.
_IN_WORDS: Final = {
    KafkaError.NOT_COORDINATOR: "another broker becomes the coordinator of the consumer group, which takes seconds",
    KafkaError.COORDINATOR_NOT_AVAILABLE: "no broker is the coordinator of the consumer group yet",
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator of the consumer group starts, which takes seconds",
    # Its own words count down, and end with "0/2 brokers are down".
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached",
    KafkaError._WAIT_COORD: "no broker is the coordinator of the consumer group yet",
    KafkaError.NOT_LEADER_FOR_PARTITION: "another broker becomes the leader of the partition, which takes seconds",
    KafkaError.LEADER_NOT_AVAILABLE: NO_LEADER,
    # Of the new protocol of consumer groups (KIP-848).
    KafkaError.STALE_MEMBER_EPOCH: "the group has a new assignment, which this member learns with its next heartbeat",
    KafkaError.FENCED_MEMBER_EPOCH: "the group went on without this member, which joins again",
}


#: Errors after which a member of a group of the new protocol (KIP-848) cannot go on, in words.
_FATAL_IN_WORDS: Final = {
    KafkaError.GROUP_ID_NOT_FOUND: "the group still has members by the protocol 'classic', and Kafka does not move it "
    "while they run: stop them all, then start with KAFKA_GROUP_PROTOCOL=consumer",
    KafkaError.UNRELEASED_INSTANCE_ID: "another member has this group.instance.id; that of a killed one is free again "
    "after the broker's session timeout",
    KafkaError.UNSUPPORTED_VERSION: "this Kafka has no groups by the protocol 'consumer', which came with Kafka 4.0",
    KafkaError._UNSUPPORTED_FEATURE: "this Kafka has no groups by the protocol 'consumer', which came with Kafka 4.0",
}


def explain_error(error: object) -> str:
    """Return an error of Kafka's client in words, with its name behind if it needs other words than the client's."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return str(error)
    if error.code() == KafkaError._FATAL:
        # It has no code of its cause, only that one's text.
        for code, advice in _FATAL_IN_WORDS.items():
            if (cause := KafkaError(code)).str() in error.str():
                return f"{advice} ({cause.name()})"
    text = _AFTER.sub("", str(error.str()))
    if login := explain_login(text):
        return (concerns_token(text) and login_errors.token_fault) or f"{login} ({text})"
    if error.code() in _NO_ANSWER and (login := login_errors.words):
        return login
    words = _IN_WORDS.get(error.code())
    return f"{words} ({error.name()})" if words else text


class FatalErrorCatcher:
    """A context that catches the KafkaError that `poll` or `flush` raise after a fatal error.

    No `except` clause can: that KafkaError is no subclass of BaseException (src/confluent_kafka.c, error_cb).

    Attributes:
        error: the error that was raised, or `None`.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if not isinstance(error, KafkaError):
            return False
        # An exception raised from here would have it as its context.
        self.error = error
        return True


def mock_cluster() -> AdminClient:
    """Return a client of librdkafka's mock cluster, which lives as long as the client.

    The mock makes a topic of 4 partitions on first use, and has no CreateTopics (librdkafka's src/rdkafka_mock.h).
    """
    return AdminClient({"test.mock.num.brokers": 1, "log_level": 3}, logger=librdkafka)


def property_fault(name: str, value: str) -> str | None:
    """Return librdkafka's objection to a property, or `None`.

    No client is made: an unknown second property always stops it, and properties are read in order.

    Returns:
        "unknown" if librdkafka has no such property, else its own sentence.
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
    """Return librdkafka's objection to these properties together, or `None`.

    Some faults show only then, such as a mechanism or a certificate's file. This does not connect.
    """
    try:
        admin_client({name: value for name, value in properties.items() if name != OAUTH_CB})
    except KafkaException as error:
        return str(error.args[0].str()).rstrip(". ")
    return None


def _debug(properties: Mapping[str, Any]) -> None:
    """Show all lines of librdkafka if KAFKA_DEBUG is set, whatever the log level."""
    if properties.get("debug"):
        librdkafka.setLevel(logging.DEBUG)


def _with_login(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of one client, with a callback of its own if a function gives its tokens.

    confluent-kafka 2.16.1 sleeps for a second in the constructor of such a client (wait_for_oauth_token_set).
    """
    if (source := properties.get(OAUTH_CB)) is not None:
        properties[OAUTH_CB] = source.make_callback(properties.get("sasl.oauthbearer.config", ""))
    return properties


def _shared(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name not in _CONSUMER_ONLY}
