"""A webhook's event quotes no error and no handler, whether fields are masked or not."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge import ledger
from bridge.deadletters.alarms import alarm_watch
from bridge.deadletters.alarms.alarm_event import begin_event
from bridge.formats.group_decision import DecisionEntry, GroupDecision, halt_key
from bridge.formats.halt_scope import HaltScope
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import BreakerStatus
from bridge.settings import EnvironmentSettings, FileSettings, Settings

SAID = "no account zebra@example.org; the last error: zebra: zebra@example.org"
FAILED = f"shop.BankError: {SAID}"


def halt(topic, data, why):
    return halt_key(topic), GroupDecision(halt_key(topic), DecisionEntry("1", data, by="somebody", why=why, at=1.0))


SMALL = HaltScope("orders", "book")


def small_halt(scope):
    decision = GroupDecision(scope.decision_key, DecisionEntry("1", {}, by="ann", why="it books twice", at=1.0))
    return scope.decision_key, decision


@pytest.fixture(params=["", "orders: email", "*: email"])
def events(request, monkeypatch):
    """The events of two halts by a handler, a person's halt and a breaker, with these masks."""
    halts = dict(
        [
            halt("orders", {"handler": "pay", "error": FAILED}, SAID),
            halt("mails", {"handler": "pay"}, SAID),
            halt("audits", {}, "the bank asked"),
            *map(
                small_halt, [SMALL._replace(key="zebra"), SMALL._replace(key="zebra2"), SMALL._replace(topic="bills")]
            ),
            small_halt(HaltScope("bills", "book", "zebra")),
        ]
    )
    why = f"2 deliveries failed, and none succeeded between; the last error: {FAILED}"
    open_ones = {"bank": BreakerStatus("open", why=why)}
    monkeypatch.setattr(Ledger, "from_settings", lambda settings: io.BytesIO())
    monkeypatch.setattr(alarm_watch, "DecisionMirror", lambda ledger: ledger)
    monkeypatch.setattr(alarm_watch, "look_up_decisions", lambda *_: halts)
    monkeypatch.setattr(alarm_watch, "CircuitBreakers", lambda _: SimpleNamespace(open_ones=lambda names: open_ones))
    settings = Settings(FileSettings(), EnvironmentSettings(DEADLETTERS_MASK=request.param), "", {})
    alarms, _ = alarm_watch.find_topic_alarms(settings, Routes({}))
    return {alarm.name: begin_event(alarm) for alarm in alarms}


def test_an_event_has_the_class_of_an_error_and_nothing_of_its_message(events):
    assert all("zebra" not in event.text + str(event.data) for event in events.values())
    assert events["orders"].data["why"] == "the handler raised shop.BankError"
    assert events["mails"].data["why"] == "the handler raised an error"
    why = "2 deliveries failed, and none succeeded between; the last error: shop.BankError"
    assert events["bank"].data["why"] == why


def test_a_halted_handler_and_halted_keys_are_told_without_the_keys(events):
    assert events["orders/book"].text == "2 keys of handler book of topic orders are halted by ann: it books twice."
    assert events["orders/book"].data["keys"] == 2
    assert events["bills/book"].text == "Handler book of topic bills is halted by ann: it books twice."


def test_the_reason_that_a_person_typed_stays(events):
    assert events["audits"].data["why"] == "the bank asked"


def test_the_breaker_s_reason_names_its_last_error_after_the_words_that_are_looked_for():
    lua = (Path(ledger.__file__).parent / "lua/breaker_rules.lua").read_text()
    assert f"why .. '{alarm_watch.LAST_ERROR}' .. s.error" in lua
