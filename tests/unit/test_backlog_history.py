"""Lag and backlog over time are those of the whole group, the highest of each minute, and one bridge writes them."""

from typing import Any

import pytest

from bridge.jobs import backlog_history as module
from bridge.jobs.backlog_history import BacklogHistory, MinutePeaks, measure_gauges
from bridge.ledger.gauge_history import GaugeKey

LAG, BACKLOG = GaugeKey("lag", "orders"), GaugeKey("backlog", "charge")


def test_lag_is_added_up_over_all_bridges_and_backlog_over_queues_and_states() -> None:
    odd = {"older version": {}, "of another program": {"lag": "x"}}
    bridges: dict[str, Any] = {"a": {"lag": {"orders": 5}}, "b": {"lag": {"orders": 2, "refunds": 0}}, **odd}
    ready, taken = {"fast": {"charge": 3.0}, "slow": {"charge": 1.0}}, {"fast": {"charge": 0.5}}
    assert measure_gauges(bridges, ["charge", "notify"], [ready, taken]) == {
        LAG: 7,
        GaugeKey("lag", "refunds"): 0,
        BACKLOG: 4,
        GaugeKey("backlog", "notify"): 0,
    }


def test_a_minute_that_is_over_has_its_highest_values() -> None:
    peaks = MinutePeaks()
    assert peaks.add_sample({LAG: 4}, 600.0) is None
    assert peaks.add_sample({LAG: 9, BACKLOG: 1}, 620.0) is None
    assert peaks.add_sample({LAG: 2}, 659.9) is None
    assert peaks.add_sample({LAG: 3}, 660.0) == (10, {LAG: 9, BACKLOG: 1})
    assert peaks.add_sample({}, 780.0) == (11, {LAG: 3})


def test_of_several_bridges_the_first_by_its_name_writes_and_the_next_one_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(module, "write_gauges", lambda _, values, minute: written.append((minute, values)))
    ledger: Any = "a ledger"
    history, both = BacklogHistory(ledger, "b"), {"a": {"lag": {"orders": 1}}, "b": {"lag": {"orders": 2}}}
    for at in (600.0, 660.0):
        history.add_sample(both, [], [], at)
    assert written == []
    history.add_sample({"b": {"lag": {"orders": 2}}}, [], [], 720.0)
    assert written == [(11, {LAG: 3})]
