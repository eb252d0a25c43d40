"""A server that does not answer is told with what to do about it, and a full broker is told as full."""

import pytest

from bridge.errors import HandoffFailed, KafkaUnavailable
from bridge.inspection import status_sources
from bridge.inspection.status import PartitionSample
from bridge.inspection.status_sources import StatusSources
from bridge.jobs.group_facts import GroupFacts, RedisMemory
from bridge.kafka import clients
from tests.unit.test_retry_partition import CHARGE, record


def test_a_broker_that_does_not_answer_is_said_with_what_mends_it():
    def question() -> None:
        raise HandoffFailed("ConnectionError: Error 111.")

    asked = StatusSources(GroupFacts(0.0, "shop", ()))
    asked.ask(question)
    assert asked.silent == [
        "The Celery broker does not answer: ConnectionError: Error 111. Start it, or fix the network or "
        "CELERY_BROKER_URL."
    ]


def test_a_broker_that_refuses_writes_is_not_told_as_one_to_start():
    def question() -> None:
        raise HandoffFailed("OperationalError: MISCONF Errors writing to the AOF file.")

    asked = StatusSources(GroupFacts(0.0, "shop", ()), broker="r:6379")
    asked.ask(question)
    assert asked.silent == [
        "The Celery broker (r:6379) answers, but refuses: Redis cannot save its data and refuses writes: see its log, "
        "and make room on its disk (OperationalError: MISCONF Errors writing to the AOF file)."
    ]


@pytest.mark.parametrize("known", [(), (RedisMemory("r:6379", 99, 100),)])
def test_a_full_broker_answers_and_is_one_redis_that_is_full(known: tuple[RedisMemory, ...]):
    def question() -> None:
        raise HandoffFailed("OutOfMemoryError: command not allowed when used memory > 'maxmemory'")

    asked = StatusSources(GroupFacts(0.0, "shop", (), memory=known), broker="r:6379")
    asked.ask(question)
    assert asked.silent == []
    (redis,) = asked.facts.memory
    assert (redis.where, redis.full, redis.used) == ("r:6379", True, 99 if known else 0)


def test_a_kafka_that_does_not_answer_is_said_with_its_address():
    def question() -> None:
        raise KafkaUnavailable("Kafka does not answer: no connection.")

    asked = StatusSources(GroupFacts(0.0, "shop", ()), bootstrap="kafka-1:9092,kafka-2:9092")
    asked.ask(question)
    (sentence,) = asked.silent
    assert "KAFKA_BOOTSTRAP_SERVERS (kafka-1:9092,kafka-2:9092)" in sentence


@pytest.mark.parametrize("token", ["", "KAFKA_OAUTH_CB=shop:token raised OSError: the issuer is down."])
def test_a_failed_login_is_said_with_its_own_advice_alone(token: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients, "login_errors", errors := clients.LoginErrors())
    monkeypatch.setattr(status_sources, "login_errors", errors)
    errors.note_token(token)
    refused = clients.KafkaError(clients.KafkaError._AUTHENTICATION, 'error: {"status":"invalid_token"}')

    def question() -> None:
        raise KafkaUnavailable(f"Kafka does not answer: {clients.explain_error(refused)}.")

    asked = StatusSources(GroupFacts(0.0, "shop", ()), bootstrap="kafka-1:9092")
    asked.ask(question)
    (sentence,) = asked.silent
    assert sentence.startswith(f"Kafka does not answer: {token or 'Kafka refuses the token: check its expiry'}")
    assert sentence.endswith(" Until then nothing new is read.")
    assert "KAFKA_BOOTSTRAP_SERVERS" not in sentence


def test_a_sample_of_a_retry_topic_tells_since_when_each_handlers_records_are_due():
    sample = PartitionSample(4, False, {1, 2, 3})
    for each in (record(0, 900.0), record(1, 1_000.0), record(2, 1_010.0), record(3, 1_020.0, "shop.mail")):
        sample.see(each, "bridge")
    assert sample.dues == {CHARGE: 1_000.0, "shop.mail": 1_020.0}
