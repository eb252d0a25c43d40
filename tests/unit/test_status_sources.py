"""A server that does not answer is told with what to do about it, and a full broker is told as full."""

import pytest

from bridge.errors import HandoffFailed, KafkaUnavailable
from bridge.inspection.status_sources import StatusSources
from bridge.jobs.group_facts import GroupFacts


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("OutOfMemoryError: command not allowed when used memory > 'maxmemory'", "raise its maxmemory"),
        ("ConnectionError: Error 111", "Start it, or fix the network or CELERY_BROKER_URL."),
    ],
)
def test_a_broker_that_does_not_answer_is_said_with_what_mends_it(error, advice):
    def question() -> None:
        raise HandoffFailed(error)

    asked = StatusSources(GroupFacts(0.0, "shop", ()))
    asked.ask(question)
    (sentence,) = asked.silent
    assert advice in sentence
    assert ("Start it" in sentence) == ("Start it" in advice)


def test_a_kafka_that_does_not_answer_is_said_with_its_address():
    def question() -> None:
        raise KafkaUnavailable("Kafka does not answer: no connection.")

    asked = StatusSources(GroupFacts(0.0, "shop", ()), bootstrap="kafka-1:9092,kafka-2:9092")
    asked.ask(question)
    (sentence,) = asked.silent
    assert "KAFKA_BOOTSTRAP_SERVERS (kafka-1:9092,kafka-2:9092)" in sentence
