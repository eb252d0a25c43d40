"""A producer that can't go on is made anew, and whatever it raises ends as an answer to the one who publishes."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.errors import PublishFailed
from bridge.records.failure import Failure
from bridge.records.message import Dead, Delivery, Message
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.topics import producer
from bridge.topics.publisher import Publisher

FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence desynchronization", fatal=True)
DELIVERY = Delivery(Message("orders", 0, 7), "work")
DEAD = Dead("permanent", Failure("E", "m", "", 1))


class Desynchronized:
    """A producer after its log has lost its end: `how` it says so."""

    made = 0

    def __init__(self, how: str) -> None:
        type(self).made += 1
        self.how = how if type(self).made == 1 else "fine"

    def list_topics(self, topic: str, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def produce(self, topic: str, on_delivery: Any, **options: Any) -> None:
        self._answer = on_delivery
        if self.how == "produce raises":
            raise KafkaException(FATAL)

    def flush(self, seconds: float) -> int:
        if self.how == "flush raises":
            raise KafkaException(FATAL)
        if self.how == "flush fails within":
            raise SystemError("returned a result with an exception set") from KafkaException(FATAL)
        self._answer(FATAL if self.how == "it answers so" else None, None)
        return 0


@pytest.mark.parametrize("how", ["produce raises", "flush raises", "flush fails within", "it answers so"])
def test_a_fatal_error_fails_one_publication_and_the_next_has_a_new_producer(how: str, monkeypatch):
    Desynchronized.made = 0
    monkeypatch.setattr(producer, "producer_client", lambda properties: Desynchronized(how))
    made = Publisher(Settings(FileSettings(), EnvironmentSettings(), "", {}))
    with pytest.raises(PublishFailed, match="orders-0-7"):
        made.dead_letter(DELIVERY, DEAD, "bridge")
    made.dead_letter(DELIVERY, DEAD, "bridge")
    assert Desynchronized.made == 2
