"""What a bridge says of a halt that it hears of."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.metrics import BridgeMetrics
from bridge.records.control import Standing, change, decided, halt_key
from bridge.settings import Settings
from bridge.upkeep.decided import Decided


def test_a_bridge_that_starts_long_after_a_halt_says_and_shows_since_when(caplog: pytest.LogCaptureFixture):
    halt = decided(halt_key("orders"), None, change({"since": 1.0}, "ann", 2.0, "the bank is closed"))
    gates: Any = SimpleNamespace(shut=set, bring_in_order=lambda shut, halts: None)
    follower: Any = SimpleNamespace(poll=lambda: [Standing(halt, 0)], went_back=False)
    metrics, settings = BridgeMetrics(), cast(Settings, SimpleNamespace())
    with caplog.at_level(logging.WARNING):
        Decided(settings, None, metrics, gates, follower=follower).look()
    assert "'orders' is halted, since 1970-01-01 00:00:01 UTC (" in caplog.text
    assert ", by ann: the bank is closed. Nothing of it" in caplog.text
    assert metrics.registry.get_sample_value("bridge_halted_since_seconds", {"topic": "orders"}) == 1
