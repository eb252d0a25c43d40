"""What is promised of webhooks where fields are masked: what is told quotes no handler."""

import io
from types import SimpleNamespace

import pytest

from bridge.deadletters.alarms import alarm_watch
from bridge.deadletters.alarms.alarm_event import begin_event
from bridge.formats.group_decision import DecisionEntry, GroupDecision, halt_key
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import BreakerStatus
from bridge.settings import EnvironmentSettings, FileSettings, Settings

SAID = "no account zebra@example.org"


def halt(topic, data, why):
    return halt_key(topic), GroupDecision(halt_key(topic), DecisionEntry("1", data, by="somebody", why=why, at=1.0))


@pytest.fixture
def told(monkeypatch):
    """What is told of three halts and a breaker, by these masks."""
    halts = dict(
        [
            halt("orders", {"handler": "pay", "error": SAID}, SAID),
            halt("mails", {"handler": "pay"}, SAID),
            halt("audits", {}, "the bank asked"),
        ]
    )
    open_ones = {"bank": BreakerStatus("open", why=SAID)}
    monkeypatch.setattr(Ledger, "from_settings", lambda settings: io.BytesIO())
    monkeypatch.setattr(alarm_watch, "DecisionMirror", lambda ledger: ledger)
    monkeypatch.setattr(alarm_watch, "look_up_decisions", lambda *_: halts)
    monkeypatch.setattr(
        alarm_watch, "CircuitBreakers", lambda ledger: SimpleNamespace(open_ones=lambda names: open_ones)
    )

    def ask(masks):
        settings = Settings(FileSettings(), EnvironmentSettings(DEADLETTERS_MASK=masks), "", {})
        alarms, _ = alarm_watch.find_topic_alarms(settings, Routes({}))
        return {alarm.name: begin_event(alarm) for alarm in alarms}

    return ask


def test_a_handler_s_words_are_not_told_where_its_topic_has_masked_fields(told):
    found = told("orders: email")
    for name in ("orders", "bank"):
        assert SAID not in found[name].text + str(found[name].data)
        assert alarm_watch.NOT_TOLD in found[name].text
    assert SAID in found["mails"].text
    assert "the bank asked" in found["audits"].text


def test_a_person_s_reason_is_told_also_where_the_topic_has_masked_fields(told):
    assert "the bank asked" in told("*: email")["audits"].text


def test_without_masks_all_is_told(told):
    found = told("")
    assert all(SAID in found[name].text for name in ("orders", "mails", "bank"))
