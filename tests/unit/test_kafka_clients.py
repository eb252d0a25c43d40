"""The clients of Kafka, as far as they need none."""

import logging

import pytest

from bridge.kafka.clients import KafkaError, KafkaException, RepeatFilter, explain_error, property_fault


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("sasl.username", "me", None),
        ("session.timeout.ms", "6000", None),
        ("home", "/opt/kafka", "unknown"),
        ("session.timeout.ms", "soon", "Invalid value"),
        ("session.timeout.ms", "-5", "outside allowed range"),
        ("security.protocol", "none", "Invalid value"),
    ],
)
def test_librdkafka_itself_says_which_properties_it_takes(name, value, fault):
    found = property_fault(name, value)
    assert found == fault or (fault is not None and found is not None and fault in found)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError.GROUP_ID_NOT_FOUND, "stop them all, then start with KAFKA_GROUP_PROTOCOL=consumer"),
        (KafkaError.UNRELEASED_INSTANCE_ID, "another member has this group.instance.id"),
        (KafkaError.UNSUPPORTED_VERSION, "which came with Kafka 4.0 (UNSUPPORTED_VERSION)"),
    ],
)
def test_the_cause_of_a_fatal_error_is_read_from_its_text(code: int, words: str):
    text = f"Fatal error: {KafkaError(code).str()}: ConsumerGroupHeartbeat fatal error: {KafkaError(code).str()}"
    assert words in explain_error(KafkaError(KafkaError._FATAL, text))
    assert explain_error(KafkaError(KafkaError._FATAL, "Fatal error: else")) == "Fatal error: else"


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("bridge.librdkafka", logging.ERROR, __file__, 1, text, (), None)


def test_a_line_that_repeats_itself_is_let_through_once_a_minute(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bridge.kafka.clients.time.monotonic", lambda: now)
    seldom = RepeatFilter()
    assert seldom.filter(line("FAIL connect to h:9092 (after 1ms)"))
    now += 59
    assert not seldom.filter(line("FAIL connect to h:9092 (after 27ms)"))
    assert seldom.filter(line("FAIL connect to other:9092 (after 1ms)"))
    now += 2
    assert seldom.filter(line("FAIL connect to h:9092 (after 3ms)"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)),
            "another broker becomes the coordinator of the consumer group, which takes seconds (NOT_COORDINATOR)",
        ),
        (
            KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE),
            "no broker is the coordinator of the consumer group yet (COORDINATOR_NOT_AVAILABLE)",
        ),
        (
            KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down"),
            "no broker can be reached (_ALL_BROKERS_DOWN)",
        ),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "Broker: Topic authorization failed"),
        (TimeoutError("no answer"), "no answer"),
    ],
)
def test_an_error_of_kafka_is_said_in_words_with_its_name_behind(error: object, words: str):
    assert explain_error(error) == words
