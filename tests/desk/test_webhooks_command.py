"""`bridge deadletters webhooks`, as a user runs it, on both databases."""

import threading
import time

import pytest

from bridge.cli.command_io import FAULTS, NOT_FOUND
from bridge.cli.deadletters import webhook_commands
from bridge.deadletters.alarms import webhook_sender
from tests.desk.commands import Commands
from tests.desk.webhook_sender import settings
from tests.servers.receiver import HERE, receiver

ADDRESS = "https://93.184.216.34/T0/s3cret"


@pytest.fixture
def desk(database, database_url, monkeypatch):
    """The commands, on a desk without webhooks."""
    return Commands(monkeypatch, database_url)


def added(desk, *words, answer=ADDRESS):
    return desk.run("webhooks", "add", "ops", "--stdin", "--by", "ann", *words, answer=f"{answer}\n")


def test_one_is_added_switched_and_removed_and_its_address_is_never_shown(desk):
    assert "no webhooks" in desk.run("webhooks").output
    ended = added(desk, "--of", "halt", "--of", "breaker")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("whsec_")
    assert "ops was added" in ended.stderr
    (shown,) = desk.given("webhooks")
    assert shown["address"] == "https://93.184.216.34/…"
    assert shown["events"] == ["halt", "breaker"]
    assert desk.run("webhooks", "off", "ops").output == "ops is off\n"
    assert desk.given("webhooks")[0]["off_at"]
    assert desk.run("webhooks", "on", "ops").output == "ops is on\n"
    listed = desk.run("webhooks", "list").output
    assert "s3cret" not in listed + ended.output
    assert "whsec_" not in listed
    assert desk.run("webhooks", "remove", "ops").output == "ops was removed\n"
    assert desk.given("webhooks") == []


def test_pagerduty_needs_its_key_alone_and_slack_its_address(desk):
    ended = added(desk, "--format", "pagerduty", answer="0123456789abcdef0123456789abcdef")
    assert ended.exit_code == 0, ended.output
    assert "whsec_" not in ended.output
    assert desk.given("webhooks")[0]["address"] == "https://events.pagerduty.com/…"
    desk.run("webhooks", "remove", "ops")
    assert added(desk, "--format", "slack", answer="https://hooks.slack.com/services/x").exit_code == 0


def test_what_is_wrong_is_said_without_the_address(desk):
    ended = added(desk, answer="https://10.0.0.1/s3cret")
    assert ended.exit_code == FAULTS
    assert "is not public" in ended.output
    assert "s3cret" not in ended.output
    assert "in its first line" in added(desk, answer="").output
    assert desk.run("webhooks", "add", "ops").exit_code == NOT_FOUND
    assert "no webhook ops" in desk.run("webhooks", "test", "ops").output


def test_a_test_says_what_came_of_it_and_that_nobody_sends(desk, database, database_url, monkeypatch, tmp_path):
    monkeypatch.setattr(webhook_commands, "TEST_POLL_PERIOD", 0.05)
    with receiver(tmp_path) as there:
        monkeypatch.setenv("DEADLETTERS_WEBHOOK_NETWORKS", HERE)
        from bridge.deadletters.alarms.alarm_event import ALL
        from bridge.deadletters.alarms.webhook_format import WebhookFormat
        from bridge.deadletters.alarms.webhook_service import WebhookService

        WebhookService(settings(database_url), database).add("ops", WebhookFormat.STANDARD, ALL, there.url, "", "ann")
        monkeypatch.setattr(webhook_commands, "TEST_SECONDS", 0.2)
        ended = desk.run("webhooks", "test", "ops")
        assert (ended.exit_code, "start `bridge deadletters record`" in ended.output) == (NOT_FOUND, True)
        monkeypatch.setattr(webhook_commands, "TEST_SECONDS", 20)
        stopping = threading.Event()

        def run():
            while not stopping.wait(0.05):
                webhook_sender.send_due_events(settings(database_url), database, stopping)

        thread = threading.Thread(target=run)
        thread.start()
        assert desk.run("webhooks", "test", "ops").output == "the test event was accepted: HTTP 200\n"
        there.answers(404)
        ended = desk.run("webhooks", "test", "ops")
        assert (ended.exit_code, ended.output) == (FAULTS, "the test event was not accepted: HTTP 404\n")
        stopping.set()
        thread.join(20)
        deadline = time.monotonic() + 20
        while any(each.name.startswith("webhook ") for each in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
