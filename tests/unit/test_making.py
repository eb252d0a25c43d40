"""A topic for dead letters is made to keep what its source may hold; what Kafka refuses ends in an answer each."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.errors import KafkaUnavailable
from bridge.topics.making import HEADROOM, USUAL, make_dead_letters

NAME, SOURCE = "orders.dlq", "orders"


def answer(found: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
    return future


def refusal(code: int, *, retriable: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "said by Kafka", retriable=retriable))


class Admin:
    """Kafka's admin client: `largest` of the source's records, and what becomes of a topic that is to be made."""

    def __init__(self, made: Any = None, largest: Any = "2000000") -> None:
        self._made, self._largest, self.asked = made, largest, list[Any]()

    def describe_configs(self, resources: Any, request_timeout: float) -> Any:
        told = self._largest
        found = told if isinstance(told, Exception) else {"max.message.bytes": SimpleNamespace(value=told)}
        return {resources[0]: answer(found)}

    def create_topics(self, topics: Any, request_timeout: float) -> Any:
        self.asked = list(topics)
        return {topics[0].topic: answer(self._made)}


def make(admin: Any) -> None:
    make_dead_letters(admin, NAME, SOURCE, 6)


def test_it_has_the_sources_partitions_and_keeps_everything_without_end(caplog):
    caplog.set_level(logging.INFO)
    admin = Admin()
    make(admin)
    (topic,) = admin.asked
    assert (topic.topic, topic.num_partitions) == (NAME, 6)
    kept = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    assert topic.config == {**kept, "max.message.bytes": str(2_000_000 + HEADROOM)}
    assert "'orders.dlq' made, with 6 partitions" in caplog.text


@pytest.mark.parametrize("told", [refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED), TimeoutError(), None, "many"])
def test_where_kafka_does_not_tell_what_the_source_takes_it_is_what_is_usual(told: Any):
    admin = Admin(largest=told)
    make(admin)
    assert admin.asked[0].config["max.message.bytes"] == str(USUAL + HEADROOM)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        refusal(KafkaError._TIMED_OUT),
        refusal(KafkaError._TRANSPORT),
        refusal(KafkaError.NOT_CONTROLLER, retriable=True),
    ],
)
def test_a_kafka_that_may_answer_later_is_asked_again(error: Exception):
    with pytest.raises(KafkaUnavailable, match=r"orders\.dlq"):
        make(Admin(error))


@pytest.mark.parametrize(
    ("code", "level", "said"),
    [
        (KafkaError.TOPIC_ALREADY_EXISTS, None, ""),
        (KafkaError._UNSUPPORTED_FEATURE, logging.INFO, "makes topics on first use"),
        (KafkaError.UNSUPPORTED_VERSION, logging.INFO, "makes topics on first use"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, logging.ERROR, "Make it by hand; dead letters wait"),
        (KafkaError.POLICY_VIOLATION, logging.ERROR, "said by Kafka"),
    ],
)
def test_what_no_waiting_helps_is_said_and_stops_nothing(code: int, level: int | None, said: str, caplog):
    caplog.set_level(logging.INFO)
    make(Admin(refusal(code)))
    assert [(record.levelno, said in record.getMessage()) for record in caplog.records] == (
        [] if level is None else [(level, True)]
    )
