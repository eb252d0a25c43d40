"""What is promised of webhooks where fields are masked: what is told quotes no handler."""

import io
from types import SimpleNamespace

import pytest

from bridge.deadletters.webhooks import standing
from bridge.deadletters.webhooks.events import begins
from bridge.handlers import Routes
from bridge.ledger import Ledger
from bridge.ledger.breakers import Known
from bridge.records.control import Change, Decision, halt_key
from bridge.settings import EnvironmentSettings, FileSettings, Settings

SAID = "no account zebra@example.org"


def halt(topic, data, why):
    return halt_key(topic), Decision(halt_key(topic), Change("1", data, by="somebody", why=why, at=1.0))


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
    open_ones = {"bank": Known("open", why=SAID)}
    monkeypatch.setattr(Ledger, "of", lambda settings: io.BytesIO())
    monkeypatch.setattr(standing, "Mirror", lambda ledger: ledger)
    monkeypatch.setattr(standing, "looked_up", lambda *_: halts)
    monkeypatch.setattr(standing, "Breakers", lambda ledger: SimpleNamespace(open_ones=lambda names: open_ones))

    def ask(masks):
        settings = Settings(FileSettings(), EnvironmentSettings(DEADLETTERS_MASK=masks), "", {})
        alarms, _ = standing.of_topics(settings, Routes({}))
        return {alarm.name: begins(alarm) for alarm in alarms}

    return ask


def test_a_handler_s_words_are_not_told_where_its_topic_has_masked_fields(told):
    found = told("orders: email")
    for name in ("orders", "bank"):
        assert SAID not in found[name].text + str(found[name].data)
        assert standing.NOT_TOLD in found[name].text
    assert SAID in found["mails"].text
    assert "the bank asked" in found["audits"].text


def test_a_person_s_reason_is_told_also_where_the_topic_has_masked_fields(told):
    assert "the bank asked" in told("*: email")["audits"].text


def test_without_masks_all_is_told(told):
    found = told("")
    assert all(SAID in found[name].text for name in ("orders", "mails", "bank"))
