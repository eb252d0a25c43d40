"""What a bridge says of a halt that it hears of."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.formats.group_decision import (
    GroupDecision,
    PublishedDecision,
    append_decision,
    halt_key,
    make_decision_entry,
)
from bridge.formats.halt_scope import HaltScope
from bridge.jobs.decision_sync import GroupDecisions
from bridge.jobs.halt_gates import HaltGates
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from lossless.transport.message_gates import AsideSize

SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})


def test_a_bridge_that_starts_long_after_a_halt_says_and_shows_since_when(caplog: pytest.LogCaptureFixture):
    halt = append_decision(
        halt_key("orders"), None, make_decision_entry({"since": 1.0}, "ann", 2.0, "the bank is closed")
    )
    gates: Any = SimpleNamespace(shut=set, align=lambda shut, halts, small: None)
    follower: Any = SimpleNamespace(poll=lambda: [PublishedDecision(halt, 0)], went_back=False)
    metrics = BridgeMetrics()
    with caplog.at_level(logging.WARNING):
        GroupDecisions(SETTINGS, None, metrics, gates, follower=follower).update()
    assert "'orders' is halted, since 1970-01-01 00:00:01 UTC (" in caplog.text
    assert ", by ann: the bank is closed. Nothing of it" in caplog.text
    assert metrics.registry.get_sample_value("bridge_halted_since_seconds", {"topic": "orders"}) == 1


class Broker:
    """The gates of a broker, and what each has set aside."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {"bridge:topic:mail": "x", "bridge:needs:bank": "y", "other:held:a:b": "z"}
        self.waiting: dict[str, int] = {}
        self.held_gates: dict[tuple[str, str], str] = {}

    @contextmanager
    def gates(self) -> Iterator["Broker"]:
        yield self

    def shut_names(self) -> dict[str, str]:
        return dict(self.names)

    def shut(self, name: str, why: str) -> None:
        self.names[name] = why

    def open(self, name: str) -> None:
        del self.names[name]

    def measure_aside(self, names: Collection[str]) -> dict[str, AsideSize]:
        return {name: AsideSize(self.waiting.get(name, 0)) for name in names}


def test_a_bridge_shuts_the_gates_of_halted_handlers_and_keys_and_counts_what_waits_until_they_are_resumed():
    charge, key = HaltScope("orders", "charge"), HaltScope("orders", "notify", "4711")
    decisions = [halt(charge), halt(key)]
    broker, metrics, log = Broker(), BridgeMetrics(), [PublishedDecision(each, n) for n, each in enumerate(decisions)]
    taken: list[PublishedDecision] = []

    def poll() -> list[PublishedDecision]:
        new, taken[:] = log[len(taken) :], log
        return new

    def value(name: str, handler: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"topic": "orders", "handler": handler})

    follower: Any = SimpleNamespace(poll=poll, went_back=False)
    gates = HaltGates(cast(Any, broker), "bridge")
    bridge = GroupDecisions(SETTINGS, None, metrics, gates, follower=follower)
    broker.waiting = {"bridge:held:orders:notify:4711": 3}
    bridge.update()
    others = {"bridge:needs:bank": "y", "other:held:a:b": "z"}
    assert broker.names == {**others, "bridge:held:orders:charge": "why", "bridge:held:orders:notify:4711": "why"}
    assert broker.held_gates == {("orders", "charge"): "bridge:held:orders:charge"}
    assert bridge.suspended.halted == {("orders", "charge")}
    assert [value("bridge_handler_halted", each) for each in ("charge", "notify")] == [1, 0]
    assert [value("bridge_keys_halted", each) for each in ("charge", "notify")] == [0, 1]
    assert [value("bridge_held_messages", each) for each in ("charge", "notify")] == [0, 3]
    log += [
        PublishedDecision(append_decision(each.key, each, make_decision_entry(None, "bob", 9.0, "")), n)
        for n, each in enumerate(decisions, 2)
    ]
    bridge.update()
    assert (broker.names, broker.held_gates, any(bridge.suspended)) == (others, {}, False)
    assert [value("bridge_held_messages", each) for each in ("charge", "notify")] == [0, 0]


def test_a_bridge_holds_a_handler_that_was_renamed_while_it_was_halted():
    broker, metrics = Broker(), BridgeMetrics()
    log = [PublishedDecision(halt(HaltScope("orders", "charge", key)), n) for n, key in enumerate((None, "4711"))]
    follower: Any = SimpleNamespace(poll=lambda: [log.pop(0)] if log else [], went_back=False)
    gates = HaltGates(cast(Any, broker), "bridge")
    bridge = GroupDecisions(SETTINGS, None, metrics, gates, follower=follower, names={"charge": "bill"})
    bridge.update()
    bridge.update()
    assert "bridge:held:orders:charge" in broker.names
    assert broker.held_gates == {("orders", "bill"): "bridge:held:orders:charge"}
    # Retry records may name it as it was called.
    assert bridge.suspended.halted == {("orders", "bill"), ("orders", "charge")}
    shown = {"topic": "orders", "handler": "bill"}
    assert metrics.registry.get_sample_value("bridge_handler_halted", shown) == 1
    assert metrics.registry.get_sample_value("bridge_keys_halted", shown) == 1


def halt(scope: HaltScope) -> GroupDecision:
    return append_decision(scope.decision_key, None, make_decision_entry({"since": 1.0}, "ann", 2.0, "why"))
