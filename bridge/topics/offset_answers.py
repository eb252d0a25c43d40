"""Offsets in the answers of Kafka's client, which gives a number below zero where it has no answer."""

from concurrent.futures import Future
from typing import Any, Final

from bridge.errors import KafkaUnavailable

#: The client's number for no offset: nothing is committed, or a question ran out of time.
OFFSET_INVALID: Final = -1001
#: In an answer about a time: no record is of that time or later.
NO_SUCH_RECORD: Final = -1


def listed_offset(answer: Future[Any], *, of_a_time: bool = False) -> int:
    """Return the offset in an answer to ListOffsets that is there; `NO_SUCH_RECORD` only if a time was asked for.

    A question that ran out of time ends without an error, and with the offset -1001 (RD_KAFKA_OFFSET_INVALID).

    Raises:
        KafkaUnavailable: the answer holds no offset.
        KafkaException: Kafka refused, or did not answer.
    """
    offset: Any = answer.result().offset
    if is_offset(offset) or (of_a_time and offset == NO_SUCH_RECORD):
        return int(offset)
    raise KafkaUnavailable(f"Kafka did not answer in time where a partition begins or ends (client: {offset}).")


def first_and_end(answer: Any) -> tuple[int, int]:
    """Return where a partition begins and ends, of what `get_watermark_offsets` gave.

    Raises:
        KafkaUnavailable: these are no offsets.
    """
    if answer is not None:
        first, end = answer
        if is_offset(first) and is_offset(end) and first <= end:
            return int(first), int(end)
    raise KafkaUnavailable(f"Kafka did not answer in time where a partition begins and ends (client: {answer}).")


def cached_first_and_end(answer: Any) -> tuple[int, int]:
    """Return where a partition begins and ends by `get_watermark_offsets(cached=True)`; -1 for what is unknown."""
    first, end = answer if answer is not None else (-1, -1)
    return int(first) if is_offset(first) else -1, int(end) if is_offset(end) else -1


def committed_offset(partition: Any) -> int | None:
    """Return the offset in an answer of `committed`; `None` if the group has committed none.

    Raises:
        KafkaUnavailable: the answer holds no offset, and does not say that there is none.
    """
    if is_offset(partition.offset):
        return int(partition.offset)
    if partition.offset == OFFSET_INVALID:
        return None
    raise KafkaUnavailable(
        f"Kafka did not say what is committed of {partition.topic}-{partition.partition} (client: {partition.offset})."
    )


def is_offset(number: Any) -> bool:
    """Return whether a client's number is an offset, and not one of those that it gives in place of an error."""
    return isinstance(number, int) and number >= 0
