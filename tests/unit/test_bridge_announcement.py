"""What a bridge tells of deliveries that none of its handlers has."""

import json
from types import MappingProxyType
from typing import Any

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.handler_routes import Routes
from bridge.jobs import bridge_announcement as announcement_module
from bridge.jobs.bridge_announcement import BridgeAnnouncement, find_other_accounts
from bridge.jobs.open_transactions import OpenTransaction
from bridge.ledger import Account, Ledger
from bridge.ledger.group_members import read_announcement


def test_handlers_that_were_renamed_are_looked_at_where_the_log_is_the_same():
    here = [Account("new", "orders", "id", 0), Account("other", "orders", "id", 0)]
    old = Account("old", "orders", "id", 0)
    elsewhere = [Account("old", "orders", "before", 0), Account("old", "orders", "id", 1), Account("x", "p", "id", 0)]
    assert find_other_accounts(here, [*here, old, *elsewhere]) == [old]


def announcement() -> BridgeAnnouncement:
    ledger = Ledger("redis://localhost:1/0", "a-cluster", "shop")
    made = BridgeAnnouncement(ledger, "tasks", Routes({}), BridgeMetrics())
    made.leave()
    return made


def test_a_bridge_that_waits_for_kafka_says_so_though_it_knows_nothing_else():
    waiting = announcement()
    waiting.update_state(["Kafka does not answer"])
    state = read_announcement(json.dumps(waiting._state), "bridges")
    assert state is not None
    assert (state["obstacles"], state["due"], state["assigned"]) == (["Kafka does not answer"], {}, [])


def test_a_bridge_announces_its_lag_by_topic_so_that_one_of_them_adds_it_up_for_the_charts():
    made = announcement()
    made._metrics.show_lag(("orders", 0), 5)
    made._metrics.show_lag(("orders", 1), 2)
    made.update_state([], lag=made._metrics.sum_lag())
    state = read_announcement(json.dumps(made._state), "bridges")
    assert state is not None
    assert state["lag"] == {"orders": 7}


def test_a_transaction_is_open_since_a_bridge_before_saw_it(monkeypatch: pytest.MonkeyPatch):
    made, said = announcement(), list[dict[str, Any]]()
    made.update_state([], open_transactions=[OpenTransaction("orders", 0, 4, 5, since=300.0)])
    monkeypatch.setattr(announcement_module, "note_first_observation", lambda _, __, seen: dict.fromkeys(seen, 100.0))
    monkeypatch.setattr(made._members, "announce", lambda _, state, **__: said.append(state))
    monkeypatch.setattr(made._skew, "measure", dict)
    made._announce()
    assert said[0]["open_transactions"] == [
        {"topic": "orders", "partition": 0, "offset": 4, "count": 5, "since": 100.0}
    ]


def test_the_log_names_what_has_a_worker_again_with_its_kind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    made = announcement()
    monkeypatch.setattr(Routes, "queues", ["shop"])
    monkeypatch.setattr(made._members, "living", dict)
    monkeypatch.setattr(made, "_show_problems", lambda *_: None)
    monkeypatch.setattr(made._workers, "last_seen", dict)
    made._unhandled = frozenset({"shop", "shop.handlers.charge"})
    with caplog.at_level("INFO"):
        made._warn({"worker": {"queues": ["shop"], "handlers": []}})
    assert sorted(caplog.messages) == [
        "handler 'shop.handlers.charge' has a worker now.",
        "queue 'shop' has a worker now.",
    ]


def test_a_worker_that_a_redis_which_refuses_writes_does_not_list_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A paged person read that a worker must be started, while the worker could not announce itself."""
    made = announcement()
    monkeypatch.setattr(Routes, "queues", ["shop"])
    monkeypatch.setattr(made._workers, "living", dict)
    shown: list[Any] = []
    monkeypatch.setattr(made._metrics, "show_workers", shown.append)
    monkeypatch.setattr(made, "_warn", shown.append)
    made._ledger = None
    made._workers.mute = "MISCONF Errors writing to the AOF file"
    made._poll_workers()
    assert shown == []
    made._workers.mute = ""
    made._poll_workers()
    assert shown == [{"shop": 0}, {}]


def test_every_count_may_be_of_any_kind_of_mapping():
    waiting = announcement()
    waiting.update_state([], due=MappingProxyType({"q": MappingProxyType({"h": 2})}), unmade=["'orders.dlq': why"])
    state = read_announcement(json.dumps(waiting._state), "bridges")
    assert state is not None
    assert (state["due"], state["unmade"]) == ({"q": {"h": 2}}, ["'orders.dlq': why"])


def test_a_refused_topic_is_refused_since_it_was_first_whatever_words_kafka_has_by_then(
    monkeypatch: pytest.MonkeyPatch,
):
    made = announcement()
    for now, why in ((1_000.0, "not allowed"), (2_000.0, "a policy forbids it")):
        monkeypatch.setattr("bridge.jobs.bridge_announcement.time.time", lambda now=now: now)
        made.update_state([], unmade=[f"'orders.dlq': {why}"])
    assert made._state["unmade_since"] == [1_000.0]


def test_two_members_of_one_host_and_process_number_are_two():
    assert announcement()._member != announcement()._member
