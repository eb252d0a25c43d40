"""Open transactions of producers: from their first record on, consumers get nothing of the partition."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import IsolationLevel, KafkaException, OffsetSpec, TopicPartition, admin_client, explain_error
from bridge.kafka.partition_offsets import listed_offset
from bridge.kafka.topic_admin import ANSWER_WITHIN
from bridge.settings import Settings


class OpenTransaction(NamedTuple):
    """An open transaction that holds back a partition.

    Attributes:
        offset: the first record that no consumer gets.
        records: how many offsets are held back.
        since: when it was first seen to hold back (Unix time); 0: it was first seen now.
    """

    topic: str
    partition: int
    offset: int
    records: int
    since: float = 0.0

    @classmethod
    def from_announcement(cls, announced: Mapping[str, Any]) -> Self:
        """Return the transaction from a bridge's announcement."""
        names = ("topic", "partition", "offset", "count", "since")
        return cls(*(announced[name] for name in names))

    def to_data(self) -> dict[str, Any]:
        """Return the transaction as a bridge announces it."""
        return dict(zip(("topic", "partition", "offset", "count", "since"), self, strict=True))


def find_open_transactions(settings: Settings, places: Iterable[Place]) -> list[OpenTransaction]:
    """Return the partitions of which Kafka has more records than consumers get at this moment.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    wanted = [TopicPartition(*place) for place in places]
    if not wanted:
        return []
    admin = admin_client(settings.kafka)

    def ends(isolation: IsolationLevel) -> dict[Place, int]:
        asked = admin.list_offsets(
            {place: OffsetSpec.latest() for place in wanted},  # type: ignore[no-untyped-call]
            isolation_level=isolation,
            request_timeout=ANSWER_WITHIN,
        )
        return {(place.topic, place.partition): listed_offset(future) for place, future in asked.items()}

    try:
        # In this order: records written in between must not seem held back.
        all_of_it, stable = ends(IsolationLevel.READ_UNCOMMITTED), ends(IsolationLevel.READ_COMMITTED)
    except KafkaException as error:
        raise KafkaUnavailable(f"Kafka did not give the ends of partitions: {explain_error(error)}.") from None
    return [
        OpenTransaction(*place, stable[place], end - stable[place])
        for place, end in sorted(all_of_it.items())
        if stable[place] < end
    ]
