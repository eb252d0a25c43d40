"""What must be known before the offsets of a group are reset."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import KafkaUnavailable
from bridge.handler_routes import Routes
from bridge.operator_actions import offset_reset


def test_nothing_is_reset_while_kafka_does_not_say_whether_a_bridge_runs(monkeypatch: pytest.MonkeyPatch):
    """The fates change before the offsets: under a running bridge its queued deliveries would be unaccounted for."""
    changed: list[Any] = []
    monkeypatch.setattr(offset_reset, "ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(offset_reset, "_write_fates", lambda *parts: changed.append(parts))
    settings: Any = SimpleNamespace(kafka={"bootstrap.servers": "127.0.0.1:1"}, group="shop")
    plan = offset_reset.ResetPlan("orders", [], [])
    with pytest.raises(KafkaUnavailable, match=r"whether a bridge of group 'shop' runs: .* Nothing has changed"):
        offset_reset.apply_reset(settings, Routes({}), plan, again=True)
    assert changed == []
