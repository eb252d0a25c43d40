"""The clients of Kafka, as far as they need none."""

import logging

import pytest

from bridge.kafka.clients import KafkaError, KafkaException, LoginErrors, RepeatFilter, explain_error, property_fault


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


BROKER = "sasl_ssl://kafka:9093/bootstrap: "
REFUSED = "SASL authentication error: Authentication failed during authentication due to invalid credentials with SASL"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{BROKER}{REFUSED} mechanism SCRAM-SHA-512 (after 311ms in state AUTH_REQ)", "KAFKA_SASL_PASSWORD"),
        (
            f'{BROKER}SASL authentication error: {{"status":"invalid_token"}} (after 3ms in state AUTH_REQ)',
            "its audience",
        ),
        (
            "Failed to acquire SASL OAUTHBEARER token: Failed to connect to 127.0.0.1:9 after 0 ms: Could not connect",
            "the issuer does not respond: check KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL",
        ),
        (
            'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}',
            "check KAFKA_SASL_OAUTHBEARER_CLIENT_ID",
        ),
        (
            f"{BROKER}SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate "
            "could not be verified (after 9ms in state SSL_HANDSHAKE)",
            "check that KAFKA_SSL_CA_LOCATION has the CA",
        ),
        (
            "ssl://k:1/bootstrap: Receive failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL "
            "alert number 46 (after 18ms in state APIVERSION_QUERY)",
            "Kafka refuses the certificate of this client, which has expired",
        ),
    ],
)
def test_an_error_of_a_login_says_what_to_check_and_is_the_same_each_time(text: str, words: str):
    said = explain_error(KafkaError(KafkaError._AUTHENTICATION, text))
    assert words in said
    assert "ms in state" not in said
    # The log has librdkafka's own line, and the words behind it.
    logged = line(f"FAIL [rdkafka#consumer-1] {text}")
    assert RepeatFilter().filter(logged)
    assert words in logged.getMessage()


def test_a_kafka_that_does_not_answer_after_a_failed_login_says_the_login(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("bridge.kafka.clients.time.monotonic", lambda: now)
    monkeypatch.setattr("bridge.kafka.clients.login_errors", errors := LoginErrors())
    given: list[KafkaError] = []
    note = errors.watch({"error_cb": given.append})["error_cb"]
    silent = KafkaError(KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure")
    note(silent)
    assert explain_error(silent) == "Failed to get metadata: Local: Broker transport failure"
    note(KafkaError(KafkaError._AUTHENTICATION, f"{BROKER}{REFUSED} mechanism PLAIN"))
    assert len(given) == 2
    assert "check KAFKA_SASL_USERNAME" in explain_error(silent)
    now += 31
    assert explain_error(silent) == "Failed to get metadata: Local: Broker transport failure"
