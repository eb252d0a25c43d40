"""What a process measures of its deliveries, and when it tells."""

from typing import Any

import pytest

from bridge.errors import LedgerUnavailable
from bridge.ledger.times import Cost
from tasks import pace


class Told:
    """Stands for the ledger's times."""

    silent = False

    def __init__(self) -> None:
        self.costs: list[Cost] = []
        self.lost: list[str] = []
        self.slow: list[str] = []

    def report(self, handler: str, cost: Cost, *, lost: bool = False, slow: bool = False) -> None:
        if self.silent:
            raise LedgerUnavailable("no answer")
        if slow:
            self.slow.append(handler)
            return
        if lost:
            self.lost.append(handler)
        else:
            self.costs.append(cost)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(pace, "Times", lambda ledger: found)
    monkeypatch.setattr(pace, "_of_process", None)
    return found


LEDGER: Any = object()


def test_the_first_run_in_a_process_is_not_told_as_it_pays_for_imports(told: Told) -> None:
    pace.note(LEDGER, "charge", Cost(1, 2.0, 4.0))
    assert told.costs == []
    pace.note(LEDGER, "charge", Cost(1, 0.001, 0.000001))
    assert told.costs == [Cost(1, 0.001, 0.000001)]


def test_what_comes_soon_after_is_told_together_later(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        pace.note(LEDGER, "charge", Cost(10, 0.5, 0.25))
    assert told.costs == [Cost(10, 0.5, 0.25)]
    monkeypatch.setattr(pace._untold(), "tell_at", 0.0)
    pace.note(LEDGER, "charge", Cost(10, 0.5, 0.25))
    assert told.costs[1:] == [Cost(40, 2.0, 1.0)]


def test_a_ledger_that_is_silent_costs_no_delivery_and_is_left_alone_for_a_while(told: Told) -> None:
    told.silent = True
    for _ in range(2):
        pace.note(LEDGER, "charge", Cost(1, 0.5, 0.25))
    told.silent = False
    pace.note(LEDGER, "charge", Cost(1, 0.5, 0.25))
    assert told.costs == []


def test_without_a_ledger_nothing_is_told(told: Told) -> None:
    for _ in range(3):
        pace.note(None, "charge", Cost(1, 0.5, 0.25))
    pace.lost(None, "charge")
    assert (told.costs, told.lost) == ([], [])


@pytest.mark.parametrize(
    ("headers", "new"),
    [
        ({}, False),
        ({"lost": 1}, True),
        ({"restored": 1}, True),
        ({"lost": 1, pace.NOTED: 1}, False),
        ({"lost": 1, "restored": 1, pace.NOTED: 1}, True),
        ({"lost": "x", "restored": [], pace.NOTED: {}}, False),
    ],
    ids=["none", "a process", "a worker", "one that was told before a retry", "one more since", "no counts"],
)
def test_a_loss_is_told_once(headers: dict[str, int], new: bool) -> None:
    assert pace.follows_new_loss(headers) is new


def test_laps_add_up_what_deliveries_take_and_what_is_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([11.0, 14.0, 14.5])
    monkeypatch.setattr("tasks.pace.time.monotonic", lambda: next(times))
    laps = pace.Laps(begun=9.0)
    assert laps.lap(laps.lap(10.0)) == 14.0
    assert laps.pace == 0.5
    assert laps.cost() == Cost(2, 4.0, 10.0, 1.5)


def test_what_kafka_takes_for_a_dead_letter_counts_in_the_mean_and_not_in_the_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([11.0, 14.0, 14.0])
    monkeypatch.setattr("tasks.pace.time.monotonic", lambda: next(times))
    laps = pace.Laps(begun=10.0)
    laps.lap(laps.lap(10.0), waited=2.0)
    found = laps.cost()
    assert (found.mean, found.spread) == (2.0, 0.0)


def test_a_slow_run_is_told_at_once_but_for_the_first_of_a_process(told: Told) -> None:
    pace.ran(LEDGER, "charge", pace.SLOW)
    assert told.slow == []
    pace.note(LEDGER, "charge", Cost(1, 2.0, 4.0))
    pace.ran(LEDGER, "charge", pace.SLOW * 0.9)
    assert told.slow == []
    pace.ran(LEDGER, "charge", pace.SLOW)
    assert told.slow == ["charge"]
    told.silent = True
    pace.ran(LEDGER, "charge", pace.SLOW)
    pace.ran(None, "charge", pace.SLOW)
