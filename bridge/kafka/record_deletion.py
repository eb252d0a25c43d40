"""The deletion of the first records of partitions, and for how long Kafka keeps the bytes of others."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import AdminClient, KafkaException, TopicPartition, explain_error

#: Seconds for Kafka's answer.
DELETED_WITHIN: Final = 30.0
#: The broker's pause between cleanups, and before it deletes a file, in ms (their defaults).
_CLEANUP_MS: Final = 360_000


def delete_first_records(admin: AdminClient, below: Mapping[Place, int]) -> dict[Place, str]:
    """Delete the records of partitions below an offset; return why it was refused, by partition.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    refused: dict[Place, str] = {}
    asked = [TopicPartition(*place, offset) for place, offset in below.items()]
    if not asked:
        return refused
    for place, answer in admin.delete_records(asked, request_timeout=DELETED_WITHIN).items():
        try:
            answer.result(DELETED_WITHIN + 1)
        except KafkaException as error:
            refused[place.topic, place.partition] = explain_error(error).rstrip(".")
        except TimeoutError:
            raise KafkaUnavailable(f"Kafka did not say in time that it deleted records of {place.topic}.") from None
    return refused


class RecordRetention(NamedTuple):
    """The rules by which a topic keeps its records; -1: for ever.

    Attributes:
        segment_ms: how long the broker writes to one file, which it deletes as a whole.
    """

    policy: str
    retention_ms: int
    segment_ms: int

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> "RecordRetention | None":
        """Return the retention of a topic's configuration; `None` if Kafka does not tell it."""
        try:
            return cls(config["cleanup.policy"], int(config["retention.ms"]), int(config["segment.ms"]))
        except (KeyError, ValueError):
            return None

    def find_end(self, timestamp_ms: int) -> float | None:
        """Return the latest time (Unix) at which Kafka drops a record that was written at a time; `None`: never.

        A file is deleted when its last record is older than the retention, and has records of `segment_ms` at most.
        """
        if "delete" not in self.policy or self.retention_ms < 0:
            return None
        return (timestamp_ms + self.segment_ms + self.retention_ms + _CLEANUP_MS) / 1000
