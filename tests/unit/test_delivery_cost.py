"""How often a worker's process tells the ledger what deliveries cost."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.ledger.handler_costs import DeliveryCost
from tasks.worker import delivery_cost


class World:
    """A ledger that keeps what it is told, and a clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.ledger = 1_000.0, object()
        self.told: list[dict[str, float]] = []
        world: Any = self
        monkeypatch.setattr(delivery_cost, "_of_process", None)
        monkeypatch.setattr(delivery_cost, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(delivery_cost, "HandlerCosts", lambda ledger: world)

    def report_all(self, costs: dict[str, DeliveryCost], at_once: Any) -> None:
        self.told.append({handler: cost.deliveries for handler, cost in costs.items()})

    def run(self, *handlers: str, seconds: float = 0.01) -> None:
        ledger: Any = self.ledger
        for handler in handlers:
            self.now += seconds
            delivery_cost.note_cost(ledger, handler, DeliveryCost(1, 0.005, 0.0))


def test_what_many_handlers_cost_goes_in_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    names = [f"h{number}" for number in range(12)]
    world.run(*names, *names)
    assert len(world.told) <= 3
    assert len(world.told[-1]) >= 10


def test_a_process_reports_ten_times_a_second_at_first_and_then_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.run(*["charge"] * 1_001)
    reports = len(world.told)
    assert delivery_cost.FIRST_REPORTS <= reports <= delivery_cost.FIRST_REPORTS + 9
    assert [round(report["charge"], -1) for report in world.told[-3:]] == [100] * 3
    # A handler that has told nothing yet is known of soon.
    world.run("notify", "notify", seconds=delivery_cost.TELL_EVERY)
    assert "notify" in world.told[-1]
