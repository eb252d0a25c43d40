"""Asking Kafka what a group has committed."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from bridge.errors import NoMoment
from bridge.kafka import partition_offsets as extent


class Coordinator:
    """Answers with these errors, one after another, and then with an offset."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        return [TopicPartition(place.topic, place.partition, 7) for place in places]


def test_a_coordinator_that_has_just_started_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extent, "AGAIN_AFTER", 0.0)
    client: Any = Coordinator(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    (found,) = extent.read_committed_offsets(client, [TopicPartition("orders", 0)])
    assert found.offset == 7


def test_another_refusal_is_an_answer():
    client: Any = Coordinator(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        extent.read_committed_offsets(client, [TopicPartition("orders", 0)])


@pytest.mark.parametrize("moment", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "2026-13-01T00:00"])
def test_a_time_that_no_clock_has_is_refused_before_kafka_is_asked(moment: str):
    settings: Any = None
    with pytest.raises(NoMoment, match="is no offset, no time"):
        extent.find_offsets_at(settings, [extent.Extent("orders", 0, 0, 9, None)], moment)
