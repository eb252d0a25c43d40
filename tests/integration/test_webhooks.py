"""Webhooks of a whole installation: a real Kafka and Redis, bridges, workers, and recorders that send."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.deadletters.alarms.alarm_event import ALL
from bridge.deadletters.alarms.webhook_format import WebhookFormat
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.db.database import Database
from tests.delivery_checks import choose, command
from tests.desk.recorders import bury, recorder
from tests.desk.webhook_sender import settings
from tests.processes import Stack, eventually
from tests.servers.receiver import HERE, Receiver, receiver


@pytest.fixture
def told(stack: Stack, desk_url: str) -> Iterator[Receiver]:
    """What the webhook of the stack's desk is told."""
    stack.environ["DEADLETTERS_WEBHOOK_NETWORKS"] = HERE
    stack.environ["DEADLETTERS_CONSOLE_URL"] = "https://console.example.com"
    database = Database(desk_url)
    database.migrate()
    with receiver(stack.folder) as there:
        WebhookService(settings(desk_url), database).add("ops", WebhookFormat.STANDARD, ALL, there.url, "", "ann")
        yield there
    database.close()


def types(told: Receiver) -> list[str]:
    return [got.body["type"] for got in told.got]


def test_a_new_group_and_a_halt_with_its_end_are_told_once_while_two_recorders_run(stack: Stack, told: Receiver):
    stack.make_topics("orders", "orders.dlq")
    recorder(stack)
    # There is one partition: it records nothing, and notices and sends all the same.
    recorder(stack, wait=False)
    bury(stack, range(3))
    eventually(lambda: types(told) == ["group.new"], 40)
    assert told.got[0].body["link"].startswith("https://console.example.com/groups/")
    topic = stack.topic("orders")
    command(stack, "halt", topic, "--why", "prices are wrong", "--by", "ann")
    eventually(lambda: types(told)[1:] == ["topic.halted"], 40)
    assert told.got[1].body["text"] == f"Topic {topic} is halted by ann: prices are wrong."
    command(stack, "resume", topic)
    eventually(lambda: types(told)[2:] == ["topic.resumed"], 40)
    assert told.got[1].body["alarm"] == told.got[2].body["alarm"]
    assert len({got.id for got in told.got}) == 3


def test_a_breaker_that_opens_and_closes_is_told(stack: Stack, told: Receiver):
    choose(stack, {"orders": {"commit": "completion"}})
    stack.environ["HANDLERS"] = "tests.handlers.needy"
    stack.make_topics("orders", "mails")
    down = Path(stack.environ["TEST_RUNS"] + ".down")
    down.touch()
    stack.bridge()
    stack.worker()
    recorder(stack, wait=False)
    stack.produce("orders", *range(50))
    eventually(lambda: "breaker.opened" in types(told), 60)
    down.unlink()
    eventually(lambda: "breaker.closed" in types(told), 60)
    opened = next(got.body for got in told.got if got.body["type"] == "breaker.opened")
    assert opened["data"]["dependency"] == "bank"
    assert "charge" in opened["data"]["handlers"]
    assert opened["data"]["why"].endswith("; the last error: ConnectionError"), "its message stays here"
