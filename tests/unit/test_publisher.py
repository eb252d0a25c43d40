"""A producer that can't go on is made anew, and whatever it raises ends as an answer to the one who publishes."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.errors import KafkaUnavailable, PublishFailed, RecordTooLarge
from bridge.formats.delivery import Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.kafka import acknowledged_producer
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.settings import EnvironmentSettings, FileSettings, Settings

FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence desynchronization", fatal=True)
DELIVERY = Delivery(Message("orders", 0, 7), "work")
SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})
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
    monkeypatch.setattr(acknowledged_producer, "producer_client", lambda properties: Desynchronized(how))
    made = Publisher(SETTINGS)
    with pytest.raises(PublishFailed, match="orders-0-7"):
        made.dead_letter(DELIVERY, DEAD, "bridge")
    made.dead_letter(DELIVERY, DEAD, "bridge")
    assert Desynchronized.made == 2


class Growing(Desynchronized):
    """A producer whose topic gets more partitions."""

    def __init__(self) -> None:
        self.count: int | None = 4
        self.how, self.written, self.asked = "fine", list[int](), 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        if self.count is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=range(self.count))})

    def produce(self, topic: str, on_delivery: Any, **options: Any) -> None:
        super().produce(topic, on_delivery, **options)
        self.written.append(options["partition"])


def test_partitions_added_to_a_dead_letter_topic_are_written_to_soon_by_a_worker_that_is_not_restarted(monkeypatch):
    kafka, now = Growing(), [0.0]
    monkeypatch.setattr(acknowledged_producer, "producer_client", lambda properties: kafka)
    made = acknowledged_producer.AcknowledgedProducer(SETTINGS, lambda: now[0])

    def write_at(moment: float, count: int | None) -> tuple[int, int]:
        now[0], kafka.count = moment, count
        made.publish("orders.dlq", Delivery(Message("orders", 5, 7), "work"), [])
        return kafka.written[-1], kafka.asked

    assert [write_at(0, 4), write_at(59, 8), write_at(60, 8), write_at(61, 8)] == [(1, 1), (1, 1), (5, 2), (5, 2)]
    # While Kafka does not say how many there are, the number is the last known one.
    assert write_at(120, None) == (5, 3)


class Takes:
    """A producer whose topic refuses what `refuses` says; and what it has taken."""

    def __init__(self, refuses: Any) -> None:
        self.refuses, self.taken = refuses, list[dict[str, Any]]()
        self.flushes = 0
        self._waiting: list[tuple[Any, Any]] = []

    def produce(self, topic: str, on_delivery: Any, **record: Any) -> None:
        code = self.refuses(record)
        if code is None:
            self.taken.append({"topic": topic, **record})
        self._waiting.append((on_delivery, None if code is None else KafkaError(code, "said by Kafka")))

    def flush(self, seconds: float) -> int:
        self.flushes += 1
        for answer, error in self._waiting:
            answer(error, None)
        self._waiting.clear()
        return 0


class Topics:
    """Retry topics: asked, they are there, or Kafka is away."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.away = False
        self.forgotten = 0

    def ready(self, source: str, delay: int, group: str) -> str:
        self.asked.append(delay)
        if self.away:
            raise KafkaUnavailable("Kafka does not answer")
        return f"{source}.retry.{delay}s"

    def partition(self, name: str, number: int) -> int:
        return number

    def forget(self) -> None:
        self.forgotten += 1


def parking(monkeypatch: pytest.MonkeyPatch, refuses: Any = lambda record: None) -> tuple[Publisher, Takes, Topics]:
    takes, topics = Takes(refuses), Topics()
    monkeypatch.setattr(acknowledged_producer, "producer_client", lambda properties: takes)
    made = Publisher(SETTINGS)
    made.retries = topics  # type: ignore[assignment]
    return made, takes, topics


FAILURE = Failure("shop.Busy", "no line " * 50, "", 5)


def clone(offset: int, delay: int = 60, value: bytes = b"v") -> ParkRequest:
    delivery = Delivery(Message("orders", 3, offset, b"k", value), "work", number=1, runs=1, error=str(FAILURE)[:300])
    return ParkRequest(delivery, delay, 1_000, None, FAILURE)


def test_what_is_parked_together_is_written_and_then_waited_for_once(monkeypatch):
    made, takes, topics = parking(monkeypatch)
    assert made.park([clone(1), clone(2), clone(3, 120)], "g") == [None] * 3
    assert [(each["topic"], each["partition"]) for each in takes.taken] == [
        ("orders.retry.60s", 3),
        ("orders.retry.60s", 3),
        ("orders.retry.120s", 3),
    ]
    assert (takes.flushes, topics.asked) == (1, [60, 120])


def test_one_that_kafka_does_not_take_keeps_back_no_other(monkeypatch):
    made, takes, topics = parking(
        monkeypatch, lambda record: KafkaError._MSG_TIMED_OUT if record["value"] == b"no" else None
    )
    first, second, third = made.park([clone(1), clone(2, value=b"no"), clone(3)], "g")
    assert (first, third) == (None, None)
    assert str(second) == "orders-3-2:work: 'orders.retry.60s' did not take its retry: said by Kafka."
    assert len(takes.taken) == 2
    # What was known of the topics is looked at anew.
    assert topics.forgotten == 1


def test_one_too_large_is_parked_with_less_said_of_its_failure(monkeypatch):
    def limit(record: Any) -> int | None:
        size = sum(len(name) + len(given) for name, given in record["headers"])
        return KafkaError.MSG_SIZE_TOO_LARGE if size > 600 else None

    made, takes, _ = parking(monkeypatch, limit)
    assert made.park([clone(1)], "g") == [None]
    (taken,) = takes.taken
    headers = dict(taken["headers"])
    assert headers["error_class"] == b"shop.Busy"
    assert "error_message" not in headers


def test_one_too_large_all_the_same_is_told_apart(monkeypatch):
    made, _, topics = parking(monkeypatch, lambda record: KafkaError.MSG_SIZE_TOO_LARGE)
    (refused,) = made.park([clone(1)], "g")
    assert isinstance(refused, RecordTooLarge)
    assert topics.forgotten == 0


def test_a_kafka_that_is_away_is_asked_once_for_all(monkeypatch):
    made, takes, topics = parking(monkeypatch)
    topics.away = True
    failures = made.park([clone(1), clone(2, 120), clone(3, 300)], "g")
    assert [isinstance(each, PublishFailed) for each in failures] == [True] * 3
    assert (topics.asked, takes.taken) == ([60], [])


class Batched:
    """A client that sends together all that is flushed, and a topic that takes 100 bytes at once."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, int]] = []

    def produce(self, topic: str, value: bytes, on_delivery: Any, **record: Any) -> None:
        self._waiting.append((on_delivery, len(value)))

    def flush(self, seconds: float) -> int:
        too_large = sum(size for _, size in self._waiting) > 100
        for answer, _ in self._waiting:
            answer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if too_large else None, None)
        self._waiting.clear()
        return 0


def test_what_was_refused_for_the_batch_that_it_was_in_is_written_alone(monkeypatch):
    monkeypatch.setattr(acknowledged_producer, "producer_client", lambda properties: Batched())
    made = acknowledged_producer.AcknowledgedProducer(Settings(FileSettings(), EnvironmentSettings(), "", {}))
    some = [
        acknowledged_producer.OutgoingRecord("orders.replay", 0, None, bytes(size), [], "a", "it")
        for size in (60, 60, 101)
    ]
    first, second, third = made.publish_all(some)
    assert (first, second) == (None, None)
    assert isinstance(third, RecordTooLarge)
