"""Which topics the handlers need beside their sources."""

from typing import Any

from bridge.handler_routes import Handler, Routes
from bridge.kafka.managed_topic import list_needed_topics
from bridge.kafka.topic_survey import describe_missing_topic, list_group_topics
from bridge.settings import EnvironmentSettings, FileSettings, Settings


def of(*handlers: Handler, **file: Any) -> list[tuple[str, str, int | None]]:
    settings = Settings(FileSettings(**file), EnvironmentSettings(), "", {})
    routes = Routes({handler.name: handler for handler in handlers})
    return [(ours.name, ours.kind.value, ours.delay) for ours in list_needed_topics(settings, routes)]


def handler(name: str, topic: str = "orders", **options: Any) -> Handler:
    return Handler(name, (topic,), "q", 1, 0, **options)


def test_each_source_has_a_topic_for_replays_and_one_for_dead_letters():
    assert of(handler("a"), handler("b", "mails")) == [
        ("mails.replay", "replay", None),
        ("mails.dlq", "dead letters", None),
        ("orders.replay", "replay", None),
        ("orders.dlq", "dead letters", None),
    ]


def test_a_list_of_delays_has_a_tier_for_each_that_is_parked():
    found = of(handler("a", retry_delays=(5, 300, 300, 1800, 1800, 1800, 3600), longest_delay=3600))
    assert [name for name, kind, _ in found if kind == "retry"] == [
        "orders.retry.5m",
        "orders.retry.30m",
        "orders.retry.1h",
    ]


def test_a_policy_that_may_wait_long_has_the_tiers_up_to_its_longest_wait_and_handlers_share_them():
    found = of(handler("a", longest_delay=600), handler("b", retry_delays=(300, 700), longest_delay=700))
    assert [delay for _, kind, delay in found if kind == "retry"] == [60, 120, 300, 600, 700]
    assert [delay for _, kind, delay in of(handler("a", longest_delay=59)) if kind == "retry"] == []
    assert [d for _, kind, d in of(handler("a", longest_delay=200), kafka_retry_tiers=(100, 400, 800)) if d] == [
        100,
        400,
    ]


def test_what_a_changed_policy_needs_is_needed_as_long_as_it_is_in_force_and_what_its_code_does_stays_so():
    settings = Settings(FileSettings(), EnvironmentSettings(), "", {})
    code = handler("a", retry_delays=(300,), longest_delay=300)
    there = {"orders", "orders.retry.5m", "orders.retry.90s"}

    def uses(*changed: Handler) -> dict[str, str]:
        found = list_group_topics(settings, Routes({"a": code}), there, changed)
        return {ours.name: use for ours, use in found if ours.kind.value == "retry"}

    assert uses() == {"orders.retry.5m": "needed", "orders.retry.90s": "drained"}
    assert uses(handler("a", retry_delays=(90, 90), longest_delay=90)) == dict.fromkeys(
        sorted(there - {"orders"}), "needed"
    )


def test_a_missing_topic_is_said_with_the_command_that_creates_it():
    settings, routes = Settings(FileSettings(), EnvironmentSettings(), "", {}), Routes({"a": handler("a")})
    source, *beside = [ours for ours, _ in list_group_topics(settings, routes, set(), ())]
    (letters,) = [ours for ours in beside if ours.name == "orders.dlq"]
    (control,) = [ours for ours in beside if not ours.source]
    assert "kafka-topics.sh --bootstrap-server $KAFKA_BOOTSTRAP_SERVERS --create --topic orders --partitions" in (
        describe_missing_topic(source, ())
    )
    # The command makes none beside a source that does not exist.
    assert describe_missing_topic(letters, ()).endswith("`bridge topics --create` makes it once 'orders' exists.")
    assert describe_missing_topic(letters, ("orders",)).endswith("`bridge topics --create` makes it.")
    assert describe_missing_topic(control, ()).endswith("`bridge topics --create` makes it.")
