"""The headers that others add to a record which they dead-letter: their names, and what each says (pure).

Each name was looked up where it is written: Spring Kafka's `KafkaHeaders` and `RetryTopicHeaders`, Kafka Connect's
`DeadLetterQueueReporter`, Confluent's `DlqAction`, Kafka's `ShareGroupDLQStateManager` (KIP-1191), SmallRye's
`KafkaDeadLetterQueue`, Karafka Pro's `strategies/dlq`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.records.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, cut

SPRING: Final = "spring"
CONNECT: Final = "connect"
CONFLUENT: Final = "confluent"
SHARE_GROUP: Final = "share-group"
SMALLRYE: Final = "smallrye"
KARAFKA: Final = "karafka"
UNKNOWN: Final = "unknown"

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER: Final = re.compile(rb"[0-9]{1,19}")
_HIGHEST: Final = 2**63 - 1


class Says(NamedTuple):
    """What a header says: a field of `Foreign`, and how its bytes are read. `None`: they are no such value."""

    field: str
    read: Callable[[bytes], str | int | None]


@dataclass(frozen=True, slots=True)
class Format:
    """How one framework writes a dead letter.

    Attributes:
        proofs: sets of names; a letter that has all of any is one of these.
        says: every name that it adds → what that says, or `None`: nothing that is kept.
        in_front: it puts its headers before the record's; of a name that occurs twice the first is then the last said.
    """

    origin: str
    proofs: tuple[frozenset[str], ...]
    says: Mapping[str, Says | None]
    in_front: bool = False


def _text(limit: int) -> Callable[[bytes], str]:
    # No database takes a null character in a text.
    return lambda raw: cut(raw.decode("utf-8", "replace").replace("\0", "\ufffd"), limit)


def _topic(raw: bytes) -> str | None:
    text = raw.decode("ascii", "replace")
    return text if _TOPIC.fullmatch(text) else None


def _digits(highest: int) -> Callable[[bytes], int | None]:
    def read(raw: bytes) -> int | None:
        return number if _NUMBER.fullmatch(raw) and (number := int(raw)) <= highest else None

    return read


def _big_endian(size: int, *, less: int = 0) -> Callable[[bytes], int | None]:
    """Java's int (4 bytes) or long (8), `less` so many; what is negative then was not known to who wrote it."""

    def read(raw: bytes) -> int | None:
        number = int.from_bytes(raw, "big", signed=True) - less
        return number if len(raw) == size and number >= 0 else None

    return read


_NAME: Final = _text(MAX_CLASS)
_SOURCE: Final = Says("topic", _topic)
_PARTITION: Final = Says("partition", _digits(2**31 - 1))
_OFFSET: Final = Says("offset", _digits(_HIGHEST))
_ATTEMPTS: Final = Says("attempts", _digits(2**31 - 1))
_GROUP: Final = Says("group", _NAME)
_REASON: Final = Says("reason", _NAME)
_CLASS: Final = Says("error_class", _NAME)
_MESSAGE: Final = Says("error_message", _text(MAX_MESSAGE))
_TRACEBACK: Final = Says("error_traceback", _text(MAX_TRACEBACK))


def _spring(prefix: str) -> dict[str, Says | None]:
    """`kafka_dlt-` of a `DeadLetterPublishingRecoverer`, `kafka_` of a `@RetryableTopic`."""
    return {
        f"{prefix}original-topic": _SOURCE,
        f"{prefix}original-partition": Says("partition", _big_endian(4)),
        f"{prefix}original-offset": Says("offset", _big_endian(8)),
        f"{prefix}original-timestamp": Says("timestamp", _big_endian(8)),
        f"{prefix}original-timestamp-type": None,
        # The class is nearly always "a listener failed" (ListenerExecutionFailedException): its cause says more.
        f"{prefix}exception-fqcn": Says("wrapper_class", _NAME),
        f"{prefix}exception-cause-fqcn": _CLASS,
        f"{prefix}exception-message": _MESSAGE,
        f"{prefix}exception-stacktrace": _TRACEBACK,
        f"{prefix}key-exception-fqcn": Says("wrapper_class", _NAME),
        f"{prefix}key-exception-message": _MESSAGE,
        f"{prefix}key-exception-stacktrace": _TRACEBACK,
    }


def _of(prefix: str, **said: Says | None) -> dict[str, Says | None]:
    """Names below a prefix; `a_b` is `a.b`."""
    return {prefix + name.replace("_", "."): says for name, says in said.items()}


FORMATS: Final = (
    Format(
        SPRING,
        proofs=tuple(
            frozenset({f"kafka_{part}{what}"})
            for part in ("dlt-", "")
            for what in ("original-topic", "exception-fqcn", "key-exception-fqcn")
        ),
        says={
            **_spring("kafka_dlt-"),
            **_spring("kafka_"),
            # Both ways have it under this one name.
            "kafka_dlt-original-consumer-group": _GROUP,
            "kafka_deliveryAttempt": Says("attempts", _big_endian(4)),
            # Which attempt would have been the next.
            "retry_topic-attempts": Says("attempts", _big_endian(4, less=1)),
            "retry_topic-original-timestamp": None,
            "retry_topic-backoff-timestamp": None,
            "kafka_listenerInfo": None,
            "springDeserializerExceptionKey": None,
            "springDeserializerExceptionValue": None,
        },
    ),
    Format(
        CONNECT,
        proofs=(frozenset({"__connect.errors.stage"}), frozenset({"__connect.errors.topic"})),
        says=_of(
            "__connect.errors.",
            topic=_SOURCE,
            partition=_PARTITION,
            offset=_OFFSET,
            connector_name=_GROUP,
            task_id=None,
            stage=_REASON,
            class_name=None,
            exception_class_name=_CLASS,
            exception_message=_MESSAGE,
            exception_stacktrace=_TRACEBACK,
        ),
    ),
    Format(
        CONFLUENT,
        proofs=(frozenset({"__rule.name"}),),
        says=_of("__rule.", topic=_SOURCE, name=_REASON, mode=Says("mode", _NAME), exception=_MESSAGE, subject=None),
    ),
    Format(
        SHARE_GROUP,
        proofs=(frozenset({"__dlq.errors.topic"}), frozenset({"__dlq.errors.group"})),
        says=_of(
            "__dlq.errors.",
            topic=_SOURCE,
            partition=_PARTITION,
            offset=_OFFSET,
            group=_GROUP,
            delivery_count=_ATTEMPTS,
            message=_REASON,
        ),
    ),
    Format(
        SMALLRYE,
        proofs=(frozenset({"dead-letter-topic", "dead-letter-exception-class-name"}),),
        says={
            "dead-letter-topic": _SOURCE,
            "dead-letter-partition": _PARTITION,
            "dead-letter-offset": _OFFSET,
            "dead-letter-exception-class-name": _CLASS,
            "dead-letter-reason": _MESSAGE,
            "dead-letter-cause-class-name": None,
            "dead-letter-cause": None,
        },
        in_front=True,
    ),
    Format(
        KARAFKA,
        # Any one of these might be a producer's own.
        proofs=(frozenset({"source_topic", "source_partition", "source_offset", "source_consumer_group"}),),
        says={
            "source_topic": _SOURCE,
            "source_partition": _PARTITION,
            "source_offset": _OFFSET,
            "source_consumer_group": _GROUP,
            "source_attempts": _ATTEMPTS,
            "source_trace_id": None,
        },
    ),
)
