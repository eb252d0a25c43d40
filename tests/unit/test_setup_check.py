"""What `bridge check` says of the group's topics that are missing, and of those that Kafka has refused to create."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from bridge.handler_routes import Handler, Routes
from bridge.inspection import setup_check
from bridge.inspection.status_sources import StatusSources
from bridge.jobs.group_facts import GroupFacts
from bridge.kafka.managed_topic import ManagedTopic, TopicKind
from bridge.kafka.topic_survey import SurveyedTopic
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks.declaration.celery_defaults import QUORUM

SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})
ROUTES: Any = SimpleNamespace(topics=[], queues=[])


def survey(missing: int, *, has_run: bool = True) -> list[SurveyedTopic]:
    """Sources that exist, each without its dead-letter topic, of a group in which a bridge has run."""
    control = ManagedTopic("bridge.control", TopicKind.CONTROL, "")
    found = [SurveyedTopic(control, "needed", 1 if has_run else None)]
    for number in range(missing):
        source = f"orders{number}"
        found.append(SurveyedTopic(ManagedTopic(source, TopicKind.SOURCE, source), "needed", 1))
        found.append(SurveyedTopic(ManagedTopic(f"{source}.dlq", TopicKind.DEAD_LETTERS, source), "needed"))
    return found


def check_topics(monkeypatch: pytest.MonkeyPatch, found: list[SurveyedTopic]) -> list[tuple[str, str]]:
    monkeypatch.setattr(setup_check, "read_published_decisions", lambda _: SimpleNamespace(standing={}))
    monkeypatch.setattr(setup_check, "changed_handlers", lambda *_: ())
    monkeypatch.setattr(setup_check, "survey_topics", lambda *_: found)
    told = setup_check._topics(None, None, SETTINGS, ROUTES)  # type: ignore[arg-type]
    return [(finding.level, finding.text) for finding in told]


def check_members(monkeypatch: pytest.MonkeyPatch, *refused: str) -> list[tuple[str, str]]:
    state = {"assigned": [], "paused": {}, "obstacles": [], "unmade": [*refused]}
    sources = StatusSources(GroupFacts(10.0, "bridge", bridges={"a:1": state}))
    monkeypatch.setattr(setup_check, "gather_facts", lambda *_: sources)
    told = setup_check._workers(None, SETTINGS, ROUTES)  # type: ignore[arg-type]
    return [(finding.level, finding.text) for finding in told]


def test_missing_topics_of_a_group_that_has_run_are_named_and_of_many_their_number(monkeypatch: pytest.MonkeyPatch):
    ((level, text),) = check_topics(monkeypatch, survey(3))
    assert level == "warning"
    assert "missing although a bridge has run: orders0.dlq, orders1.dlq, orders2.dlq. Until they exist" in text
    ((level, text),) = check_topics(monkeypatch, survey(118))
    assert text.startswith("118 topics of the group are missing")
    assert "orders9.dlq and 108 more, which `bridge topics` lists. Until they exist" in text


def test_topics_that_the_first_bridge_will_create_are_no_finding(monkeypatch: pytest.MonkeyPatch):
    assert check_topics(monkeypatch, survey(3, has_run=False)) == []


def test_topics_that_kafka_has_refused_to_create_are_a_fault(monkeypatch: pytest.MonkeyPatch):
    assert check_members(monkeypatch) == []
    ((level, text),) = check_members(monkeypatch, "'orders.dlq': a dead letter stays in the Celery broker")
    assert level == "fault"
    assert "Kafka has refused to create 1 topic of the group: 'orders.dlq'" in text


def test_a_broker_that_refuses_writes_is_said_with_what_to_do_and_not_as_one_that_is_down(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse(*_: Any, **__: Any) -> None:
        raise OperationalError("MISCONF Errors writing to the AOF file.")

    monkeypatch.setattr(
        setup_check, "make_broker_connection", lambda _: SimpleNamespace(ensure_connection=refuse, release=lambda: None)
    )
    app: Any = SimpleNamespace(conf=SimpleNamespace(broker_url="redis://h/0"))
    chosen = Settings(FileSettings(), EnvironmentSettings(), "redis://h/0", {})
    (finding,) = setup_check._broker(app, chosen, SimpleNamespace())  # type: ignore[arg-type]
    assert finding.text == (
        "the Celery broker at redis://h/0: Redis cannot save its data and refuses writes: see its log, and make room "
        "on its disk (OperationalError: MISCONF Errors writing to the AOF file)."
    )


def test_without_a_ledger_it_is_said_that_a_recorder_with_another_database_is_not_noticed():
    amqp = Settings(FileSettings(), EnvironmentSettings(), "amqp://h", {})
    (finding,) = setup_check._ledger(amqp)
    assert finding.level == "warning"
    assert "a second recorder of dead letters with another database is not noticed" in finding.text


def test_a_window_of_unique_names_that_a_retry_may_outlast_is_a_warning():
    charge = Handler("charge", ("orders",), "q", 1, 1, unique_for=3_600, longest_delay=600)
    routes = {"charge": charge, "plain": replace(charge, unique_for=None), "short": replace(charge, unique_for=600)}
    (found,) = setup_check.find_short_windows(Routes(routes))
    assert found.level == "warning"
    assert "unique_for (600 s) is not longer than its longest retry delay (600 s)" in found.text


def test_a_quorum_queue_from_which_rabbitmq_drops_or_holds_up_deliveries_is_a_warning():
    quorum = {"x-queue-type": "quorum"}
    given = [
        Queue("classic", Exchange("classic", "direct")),
        Queue("bare", Exchange("bare", "direct"), queue_arguments=quorum),
        Queue("whole", Exchange("whole", "topic"), queue_arguments=QUORUM),
    ]
    texts = [finding.text for finding in setup_check.find_unfit_quorum_queues(given)]
    assert len(texts) == 3
    assert ["x-delivery-limit" in texts[0], "x-consumer-timeout" in texts[1], "direct exchange" in texts[2]] == [
        True
    ] * 3
    assert all("the quorum queue 'bare'" in text for text in texts)
