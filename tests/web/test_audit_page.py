"""What is promised of Audit: a proof that is counted when it is asked for."""

import re
from html import unescape

import pytest

from bridge.console.console import Console
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import KafkaUnavailable
from bridge.inspection.topic_audit import LogChange, TopicAudit
from bridge.ledger.unaccounted_offsets import AuditLine
from tests.desk.letters import HANDLER
from tests.desk_of_stack import desk as desk_of
from tests.processes import Stack, stack
from tests.web import hostile_input
from tests.web.conftest import signed_in
from tests.web.status_answer import status

__all__ = ["stack"]


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


@pytest.fixture
def counted(monkeypatch, desk, console):
    """Says what an audit finds."""

    def made(*lines, changes=()):
        monkeypatch.setattr(
            "bridge.console.audit_cache.audit_topic",
            lambda app, settings, routes, topic: TopicAudit(topic, [*lines], log_changes=[*changes]),
        )

    console.status_cache = make_status_cache(status)
    # The broker of the tests' desk is none that a ledger could be in.
    monkeypatch.setattr(type(desk.settings), "ledger_url", "redis://ledger")
    return made


def post(client, path):
    return client.post(path, data={"token": client.token})


def test_nothing_is_counted_before_somebody_asks_and_then_once(browser, counted):
    counted(
        AuditLine(HANDLER, 0, 0, 110, 110, 0, done=100, dead=7, handed=3),
        AuditLine(HANDLER, 1, 0, 50, 40, 0, done=40, open=10),
    )
    ann = browser(Role.VIEWER)
    assert "No topic has been audited yet" in words(ann.get("/audit").text)
    answer = post(ann, "/audit/orders")
    assert (answer.status_code, answer.headers["location"]) == (303, "/audit")
    text = words(ann.get("/audit").text)
    assert text.startswith("0 of 150 deliveries are unaccounted for")
    assert f"{HANDLER} 150 140 3 0 7 0 0" in text
    assert "Count again" in text
    assert "0 of 150 deliveries unaccounted for, counted" in words(ann.get("/").text)


def test_what_is_unaccounted_for_comes_first_with_its_offsets(browser, counted):
    bad = AuditLine(
        "z.last", 3, 0, 50, 40, 0, done=38, open=12, unaccounted=2, unaccounted_at=[7, 9], letters_missing=[4]
    )
    bad.forgotten, bad.forgotten_at = 3, [1, 2]
    counted(AuditLine(HANDLER, 0, 0, 10, 10, 0, done=10), bad, changes=[LogChange(3, "expired", 0, 5, 2, "2026-11-21")])
    ann = browser()
    post(ann, "/audit")
    text = words(ann.get("/audit").text)
    assert text.startswith("5 of 53 deliveries are unaccounted for")
    assert text.index("z.last 43 38") < text.index(HANDLER)
    assert "orders -3 : unaccounted for: 2, from 7, 9." in text
    assert "Dead, but without a dead letter: 4." in text
    assert "Forgotten, committed before the ledger was wiped: 3, from 1, 2." in text
    assert "2 of them were never handled" in text
    assert "5 deliveries are unaccounted for." in words(ann.get("/").text)


def test_a_server_that_is_away_is_said_and_nothing_of_the_count(browser, counted, monkeypatch):
    def away(*_):
        raise KafkaUnavailable("Kafka at k:9092 does not answer.")

    counted()
    monkeypatch.setattr("bridge.console.audit_cache.audit_topic", away)
    ann = browser()
    answer = post(ann, "/audit/orders")
    assert answer.status_code == 503
    assert "Kafka at k:9092 does not answer." in words(answer.text)
    assert "No topic has been audited yet" in words(answer.text)


def test_what_others_wrote_is_text(browser, counted):
    counted(AuditLine(hostile_input.TEXT, 0, 0, 10, 10, 0, done=10, unaccounted=1))
    ann = browser()
    post(ann, "/audit/orders")
    hostile_input.check(ann.get("/audit").text)


def test_the_proof_and_the_log_of_acts_are_pages_of_their_own(browser, desk, counted):
    desk.trail.add("ann", "note", "an act")
    ann = browser()
    assert "an act" not in ann.get("/audit").text
    assert "an act" in ann.get("/activity").text
    assert "unaccounted" not in words(ann.get("/activity").text)


def test_it_counts_what_bridge_audit_counts_on_the_servers(stack: Stack):
    stack.make_topics("orders")
    stack.produce("orders", 1, 2)
    with desk_of(stack, "orders") as desk, signed_in(Console(desk, "shop"), Role.VIEWER) as client:
        assert post(client, "/audit").status_code == 303
        text = words(client.get("/audit").text)
        assert text.startswith("0 of 0 deliveries are unaccounted for")
        assert stack.topic("orders") in text
        answer = post(client, "/audit/nobodys")
        assert answer.status_code == 503
        assert "no handler names topic" in words(answer.text)
