"""Dead letters of other frameworks (Spring Kafka, Kafka Connect, Confluent, share groups, SmallRye, Karafka): the
headers of each, and what they mean (pure). A dead letter of an unknown format keeps all its headers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.formats.delivery import Header
from bridge.formats.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, cut

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


class HeaderMeaning(NamedTuple):
    """The meaning of a header: a field of `ForeignDeadLetter`, and the reader of its bytes (`None` if they are no such
    value).
    """

    field: str
    read: Callable[[bytes], str | int | None]


@dataclass(frozen=True, slots=True)
class ForeignFormat:
    """The format of one framework's dead letters.

    Attributes:
        proofs: sets of header names; a dead letter that has all names of one set is of this format.
        says: the meaning of each header that the framework adds; `None` if it is not kept.
        in_front: whether its headers are put before the record's own; the first of a repeated name is then the newest.
    """

    origin: str
    proofs: tuple[frozenset[str], ...]
    says: Mapping[str, HeaderMeaning | None]
    in_front: bool = False


def _text(limit: int) -> Callable[[bytes], str]:
    # No database takes a null character in text.
    return lambda raw: cut(raw.decode("utf-8", "replace").replace("\0", "\ufffd"), limit)


def _topic(raw: bytes) -> str | None:
    text = raw.decode("ascii", "replace")
    return text if _TOPIC.fullmatch(text) else None


def _digits(highest: int) -> Callable[[bytes], int | None]:
    def read(raw: bytes) -> int | None:
        return number if _NUMBER.fullmatch(raw) and (number := int(raw)) <= highest else None

    return read


def _big_endian(size: int, *, less: int = 0) -> Callable[[bytes], int | None]:
    """Return a reader of Java's int (4 bytes) or long (8), reduced by `less`; a negative number means unknown."""

    def read(raw: bytes) -> int | None:
        number = int.from_bytes(raw, "big", signed=True) - less
        return number if len(raw) == size and number >= 0 else None

    return read


_NAME: Final = _text(MAX_CLASS)
_SOURCE: Final = HeaderMeaning("topic", _topic)
_PARTITION: Final = HeaderMeaning("partition", _digits(2**31 - 1))
_OFFSET: Final = HeaderMeaning("offset", _digits(_HIGHEST))
_ATTEMPTS: Final = HeaderMeaning("attempts", _digits(2**31 - 1))
_GROUP: Final = HeaderMeaning("group", _NAME)
_REASON: Final = HeaderMeaning("reason", _NAME)
_CLASS: Final = HeaderMeaning("error_class", _NAME)
_MESSAGE: Final = HeaderMeaning("error_message", _text(MAX_MESSAGE))
_TRACEBACK: Final = HeaderMeaning("error_traceback", _text(MAX_TRACEBACK))


def _spring(prefix: str) -> dict[str, HeaderMeaning | None]:
    """Return the headers with `kafka_dlt-` of a `DeadLetterPublishingRecoverer`, or `kafka_` of a `@RetryableTopic`."""
    return {
        f"{prefix}original-topic": _SOURCE,
        f"{prefix}original-partition": HeaderMeaning("partition", _big_endian(4)),
        f"{prefix}original-offset": HeaderMeaning("offset", _big_endian(8)),
        f"{prefix}original-timestamp": HeaderMeaning("timestamp", _big_endian(8)),
        f"{prefix}original-timestamp-type": None,
        # The class is usually "a listener failed" (ListenerExecutionFailedException); its cause says more.
        f"{prefix}exception-fqcn": HeaderMeaning("wrapper_class", _NAME),
        f"{prefix}exception-cause-fqcn": _CLASS,
        f"{prefix}exception-message": _MESSAGE,
        f"{prefix}exception-stacktrace": _TRACEBACK,
        f"{prefix}key-exception-fqcn": HeaderMeaning("wrapper_class", _NAME),
        f"{prefix}key-exception-message": _MESSAGE,
        f"{prefix}key-exception-stacktrace": _TRACEBACK,
    }


def _names_below(prefix: str, **said: HeaderMeaning | None) -> dict[str, HeaderMeaning | None]:
    """Return headers with a common prefix; `a_b` stands for `a.b`."""
    return {prefix + name.replace("_", "."): says for name, says in said.items()}


FOREIGN_FORMATS: Final = (
    ForeignFormat(
        SPRING,
        proofs=tuple(
            frozenset({f"kafka_{part}{what}"})
            for part in ("dlt-", "")
            for what in ("original-topic", "exception-fqcn", "key-exception-fqcn")
        ),
        says={
            **_spring("kafka_dlt-"),
            **_spring("kafka_"),
            # Both ways use this name.
            "kafka_dlt-original-consumer-group": _GROUP,
            "kafka_deliveryAttempt": HeaderMeaning("attempts", _big_endian(4)),
            # The number of the next attempt.
            "retry_topic-attempts": HeaderMeaning("attempts", _big_endian(4, less=1)),
            "retry_topic-original-timestamp": None,
            "retry_topic-backoff-timestamp": None,
            "kafka_listenerInfo": None,
            "springDeserializerExceptionKey": None,
            "springDeserializerExceptionValue": None,
        },
    ),
    ForeignFormat(
        CONNECT,
        proofs=(frozenset({"__connect.errors.stage"}), frozenset({"__connect.errors.topic"})),
        says=_names_below(
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
    ForeignFormat(
        CONFLUENT,
        proofs=(frozenset({"__rule.name"}),),
        says=_names_below(
            "__rule.", topic=_SOURCE, name=_REASON, mode=HeaderMeaning("mode", _NAME), exception=_MESSAGE, subject=None
        ),
    ),
    ForeignFormat(
        SHARE_GROUP,
        proofs=(frozenset({"__dlq.errors.topic"}), frozenset({"__dlq.errors.group"})),
        says=_names_below(
            "__dlq.errors.",
            topic=_SOURCE,
            partition=_PARTITION,
            offset=_OFFSET,
            group=_GROUP,
            delivery_count=_ATTEMPTS,
            message=_REASON,
        ),
    ),
    ForeignFormat(
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
    ForeignFormat(
        KARAFKA,
        # Each of these alone might be a producer's own header.
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


__all__ = [
    "CONFLUENT",
    "CONNECT",
    "KARAFKA",
    "SHARE_GROUP",
    "SMALLRYE",
    "SPRING",
    "UNKNOWN",
    "ForeignDeadLetter",
    "read_foreign_dead_letter",
]


@dataclass(frozen=True, slots=True)
class ForeignDeadLetter:
    """The contents of another framework's dead letter, as far as its headers state them.

    Attributes:
        origin: the framework: `SPRING`, `CONNECT`, `CONFLUENT`, `SHARE_GROUP`, `SMALLRYE`, `KARAFKA` or `UNKNOWN`.
        topic: the source topic; "" if it is missing or no valid topic name.
        partition, offset: of the source record.
        timestamp: of the source record, in ms since the epoch.
        group: the consumer group, or the connector's name; "".
        reason: in the framework's words: Connect's stage, a share group's message, mode and name of Confluent's rule;
            "". With Confluent's mode WRITE the record never was in the source topic, and its value may be JSON.
        error_class: Java's name as it is; for Spring the cause, not the listener's failure. At most `MAX_CLASS`
            characters (bridge.formats.failure), like all names.
        error_message: cut to `MAX_MESSAGE` characters.
        error_traceback: cut to `MAX_TRACEBACK` characters.
        attempts: how often the record was tried; 0 if unknown.
        failed_at: ms since the epoch. No known format has it: the dead letter's own timestamp tells it, except for
            Connect, which keeps the source record's.
        theirs: the producer's own headers, byte for byte and in order, without the framework's; all headers if the
            format is unknown.
    """

    origin: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    group: str = ""
    reason: str = ""
    error_class: str = ""
    error_message: str = ""
    error_traceback: str = ""
    attempts: int = 0
    failed_at: int | None = None
    theirs: tuple[Header, ...] = ()


def read_foreign_dead_letter(headers: Sequence[Header]) -> ForeignDeadLetter:
    """Return the contents of these headers; the newest of a repeated name counts.

    Parameters:
        headers: of a record that is no dead letter of ours.

    Guarantees: raises nothing. A value that cannot be read counts as missing. No text has a null character.
    """
    found = _find_format(headers)
    if found is None:
        return ForeignDeadLetter(UNKNOWN, theirs=tuple(headers))
    theirs = tuple(header for header in headers if header[0] not in found.says)
    return ForeignDeadLetter(found.origin, theirs=theirs, **_read_fields(found, headers))


def _find_format(headers: Sequence[Header]) -> ForeignFormat | None:
    """Return the format; if several frameworks dead-lettered the record in turn, the last one's."""
    last = {name: at for at, (name, _) in enumerate(headers)}
    proven = [
        (max(last[name] for name in proof), known)
        for known in FOREIGN_FORMATS
        for proof in known.proofs
        if proof <= last.keys()
    ]
    return max(proven, key=lambda pair: pair[0])[1] if proven else None


def _read_fields(known: ForeignFormat, headers: Sequence[Header]) -> dict[str, Any]:
    """Return the value of each field that can be read."""
    said: dict[str, Any] = {}
    for name, raw in reversed(headers) if known.in_front else headers:
        says = known.says.get(name)
        if says is not None:
            # Also if it cannot be read: the value before it belongs to an earlier failure.
            said[says.field] = None if raw is None else says.read(raw)
    return _merge_fields({field: value for field, value in said.items() if value is not None})


def _merge_fields(said: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with those that two headers share merged into one."""
    wrapper, mode = said.pop("wrapper_class", ""), said.pop("mode", "")
    error_class, reason = said.get("error_class", ""), said.get("reason", "")
    return {**said, "error_class": error_class or wrapper, "reason": f"{mode} {reason}".strip()}
