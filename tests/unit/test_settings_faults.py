"""Every fault of the settings: a sentence that says what to do, and none where nothing is wrong."""

import pytest
from celery import Celery

from bridge.handler_routes import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings, TopicSettings, settings_validation
from tasks import Limit

REDIS = "redis://localhost:6379/0"


def settings(topic: TopicSettings, broker: str = REDIS, ledger: str = "") -> Settings:
    file = FileSettings(kafka_topics={"orders": topic})
    return Settings(file, EnvironmentSettings(LEDGER_URL=ledger), broker, {})


@pytest.mark.parametrize(
    ("name", "pattern", "said"),
    [
        ("kafka_retry_topic", "{topic}.retry.{delay}", None),
        ("kafka_retry_topic", "{group}-{topic}-{delay}", None),
        ("kafka_dead_letter_topic", "dead", None),
        ("kafka_retry_topic", "{topic}.retry", "must contain {delay}"),
        ("kafka_replay_topic", "replay", "must contain {topic}"),
        ("kafka_replay_topic", "{topic}.{0}", "may use {topic}, {delay} and {group} only"),
        ("kafka_control_topic", "decided.{group}", None),
        ("kafka_control_topic", "decided", "must contain {group}"),
        ("kafka_control_topic", "{topic}.{group}", "may use {group} only"),
        ("kafka_dead_letter_topic", "{topic}.{partition}", "may use {topic}, {delay} and {group} only"),
        ("kafka_dead_letter_topic", "{topic", "may use {topic}, {delay} and {group} only"),
        ("kafka_dead_letter_topic", "{topic} dead", "which Kafka does not take for a topic"),
    ],
)
def test_a_pattern_that_gives_no_topic_is_a_fault(name: str, pattern: str, said: str | None):
    found = settings_validation.find_pattern_faults(FileSettings.model_validate({name: pattern}), "bridge")
    assert len(found) == (said is not None)
    assert said is None or (said in found[0] and name in found[0])


@pytest.mark.parametrize(("resume", "pause", "wrong"), [(9, 10, 0), (10, 10, 1), (11, 10, 1)])
def test_a_queue_is_resumed_below_where_it_is_paused(resume: int, pause: int, wrong: int):
    file = FileSettings(kafka_resume_below=resume, kafka_pause_above=pause)
    assert len(settings_validation.find_pressure_faults(file)) == wrong


@pytest.mark.parametrize(
    ("topic", "broker", "ledger", "said"),
    [
        (TopicSettings(), "amqp://", "", []),
        (TopicSettings(commit="completion", order="key"), REDIS, "", []),
        (TopicSettings(commit="completion"), "amqp://", REDIS, []),
        (TopicSettings(order="key"), REDIS, "", ["order='key' needs commit='completion'"]),
        (TopicSettings(commit="completion"), "amqp://", "", ["commit='completion' needs a ledger"]),
        (TopicSettings(sequence=("a",)), "amqp://", "", ["sequence=('a',) needs a ledger"]),
        (TopicSettings(commit="completion", order="key", after_dead="hold"), REDIS, "", []),
        (TopicSettings(after_dead="hold"), REDIS, "", ["after_dead='hold' holds what is behind a dead letter"]),
        (
            TopicSettings(commit="completion", order="key", sequence=("a",), after_dead="hold"),
            REDIS,
            "",
            ["after_dead='hold' and a sequence do not go together yet"],
        ),
        (TopicSettings(handoff_durability="fsync"), REDIS, "", []),
        # Another Redis than the broker's says nothing of the broker's append-only file.
        (TopicSettings(handoff_durability="fsync"), REDIS, "redis://other", ["must be one Redis"]),
        (
            TopicSettings(order="partition", handoff_durability="fsync"),
            "amqp://",
            "",
            ["needs commit='completion'", "must be one Redis", "order='partition' needs a ledger"],
        ),
    ],
)
def test_what_a_topic_asks_of_the_ledger_must_be_there(topic: TopicSettings, broker: str, ledger: str, said: list[str]):
    found = settings_validation.find_ledger_faults(settings(topic, broker, ledger))
    assert [part in fault for part, fault in zip(said, found, strict=True)] == [True] * len(said)


def test_a_sequence_names_handlers_of_its_topic_alone():
    routes = Routes({"a": Handler("a", ("orders",), "q", 1, 1), "b": Handler("b", ("payments",), "q", 1, 1)})
    found = settings_validation.find_sequence_faults(settings(TopicSettings(sequence=("a", "b", "c"))), routes)
    assert [fault.split("names ")[1] for fault in found] == [
        "'b', which is no handler of that topic.",
        "'c', which is no handler of that topic.",
    ]


@pytest.mark.parametrize(("broker", "ledger"), [("amqp://", ""), ("amqp://", "redis://r"), ("redis://r", "")])
def test_a_handler_with_unique_names_needs_a_ledger(broker: str, ledger: str):
    routes = Routes(
        {
            "plain": Handler("plain", ("orders",), "q", 1, 1),
            "charge": Handler("charge", ("orders",), "q", 1, 1, unique_for=60),
        }
    )
    found = settings_validation.find_unique_faults(settings(TopicSettings(), broker, ledger), routes)
    assert [fault.split(",")[0] for fault in found] == (
        ["charge: unique_by needs a ledger in Redis"] if (broker, ledger) == ("amqp://", "") else []
    )


def test_a_handler_with_a_limit_needs_a_ledger():
    routes = Routes({"charge": Handler("charge", ("orders",), "q", 1, 1, limit=Limit("bank", concurrency=2))})
    fault = settings_validation.find_limit_faults(settings(TopicSettings(), "amqp://", ""), routes)
    assert [each.split(",")[0] for each in fault] == ["charge: limit needs a ledger in Redis"]
    assert settings_validation.find_limit_faults(settings(TopicSettings(), "redis://r", ""), routes) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sasl.username", "me", None),
        ("port", "9092", settings_validation.UNKNOWN_PROPERTY),
        ("group.id", "mine", "KAFKA_X: the bridge sets group.id itself: remove the variable."),
        ("enable.auto.commit", "true", "the bridge sets enable.auto.commit itself"),
    ],
)
def test_a_property_is_taken_left_out_or_refused(name: str, value: str, said: str | None):
    found = settings_validation.find_property_fault("KAFKA_X", name, value)
    assert found == said or (said is not None and found is not None and said in found)


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl.jaas.config"])
def test_a_refused_secret_is_not_shown(name: str, monkeypatch):
    monkeypatch.setattr(settings_validation, "property_fault", lambda name, value: f"Invalid value {value!r} ")
    assert settings_validation.find_property_fault("KAFKA_X", name, "hunter2") == "KAFKA_X: Invalid value '…'."
    assert (
        settings_validation.find_property_fault("KAFKA_X", "linger.ms", "hunter2")
        == "KAFKA_X: Invalid value 'hunter2'."
    )


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        *((url, None) for url in (REDIS, "rediss://h", "redis+socket:///s", "sentinel://a;sentinel://b")),
        *((url, None) for url in ("amqp://", "amqps://h")),
        *((f"{name}://", name) for name in ("memory", "filesystem", "sqla+sqlite", "sqs", "kafka", "redis+cluster")),
        ("redis://a;memory://", "memory"),
    ],
)
def test_a_broker_is_supported_or_refused_by_name(url: str, scheme: str | None):
    said = settings_validation.find_broker_faults(url)
    assert len(said) == (scheme is not None)
    assert scheme is None or (f"the broker {scheme!r} is not supported" in said[0] and "RabbitMQ (amqp" in said[0])


@pytest.mark.parametrize(
    "url",
    ["redis://:se;cretpw@h/0", "redis://:se;cretpw://x@h/0", "cretpw@h/0", "cretpw", "redis://a;user:cretpw@b"],
)
def test_a_part_of_a_password_is_not_taken_for_the_name_of_a_broker(url: str):
    (fault,) = settings_validation.find_broker_faults(url)
    assert "cret" not in fault
    assert "%3B" in fault


def test_a_broker_that_is_not_supported_is_a_fault_of_the_app():
    with Celery(broker="memory://", set_as_current=False) as app:
        assert any("'memory' is not supported" in fault for fault in settings_validation.find_celery_faults(app))


@pytest.mark.parametrize(("kind", "count"), [(None, 0), ("classic", 0), ("quorum", 0), ("qourum", 1)])
def test_a_type_of_queues_that_rabbitmq_has_not_is_a_fault(kind: str | None, count: int) -> None:
    faults = settings_validation.find_queue_type_faults(kind)
    assert faults == [f"task_default_queue_type must be 'quorum' or 'classic'; it is {kind!r}."] * count
