"""What a bridge says of a halt that it hears of."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.formats.group_decision import PublishedDecision, append_decision, halt_key, make_decision_entry
from bridge.jobs.decision_sync import GroupDecisions
from bridge.settings import Settings


def test_a_bridge_that_starts_long_after_a_halt_says_and_shows_since_when(caplog: pytest.LogCaptureFixture):
    halt = append_decision(
        halt_key("orders"), None, make_decision_entry({"since": 1.0}, "ann", 2.0, "the bank is closed")
    )
    gates: Any = SimpleNamespace(shut=set, align=lambda shut, halts: None)
    follower: Any = SimpleNamespace(poll=lambda: [PublishedDecision(halt, 0)], went_back=False)
    metrics, settings = BridgeMetrics(), cast(Settings, SimpleNamespace())
    with caplog.at_level(logging.WARNING):
        GroupDecisions(settings, None, metrics, gates, follower=follower).update()
    assert "'orders' is halted, since 1970-01-01 00:00:01 UTC (" in caplog.text
    assert ", by ann: the bank is closed. Nothing of it" in caplog.text
    assert metrics.registry.get_sample_value("bridge_halted_since_seconds", {"topic": "orders"}) == 1
