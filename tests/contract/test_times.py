"""What deliveries cost, as workers tell it and bridges read it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from bridge.ledger import Ledger
from bridge.ledger.times import FADES_IN, Cost, Known, Times


@pytest.fixture
def times(redis_url: str) -> Iterator[Times]:
    with closing(Ledger(redis_url, "cluster", "bridge")) as ledger:
        yield Times(ledger)


def test_nothing_is_known_of_a_handler_that_has_not_run(times: Times) -> None:
    assert times.known(["charge"]) == {"charge": Known()}


def test_what_processes_tell_is_added_up_by_handler(times: Times) -> None:
    for _ in range(2):
        times.report("charge", Cost(10, 0.01, 0.00001, 0.001))
    times.report("notify", Cost(1, 3.0, 9.0))
    known = times.known(["charge", "notify"])
    charge, notify = known["charge"].cost, known["notify"].cost
    assert charge is not None
    assert charge.mean == pytest.approx(0.0011)
    assert charge.spread == pytest.approx(0, abs=1e-6)
    assert notify == Cost(1, 3.0, 9.0, 0)


def test_a_handler_that_has_become_slow_is_known_to_be_after_seconds_of_its_work(times: Times) -> None:
    times.report("charge", Cost(100_000, 10.0, 0.001))
    for _ in range(10):
        times.report("charge", Cost(1, FADES_IN, FADES_IN**2))
    found = times.known(["charge"])["charge"].cost
    assert found is not None
    assert found.mean > FADES_IN / 10


def test_a_lost_process_is_known_of_and_what_deliveries_take_stays_known(times: Times) -> None:
    times.report("charge", Cost(10, 0.01, 0.00001))
    times.report("charge", Cost(), lost=True)
    known = times.known(["charge"])["charge"]
    assert known.cost is not None
    assert known.lost is not None
    assert known.lost < 5


def test_another_group_knows_nothing_of_it(times: Times, redis_url: str) -> None:
    times.report("charge", Cost(10, 0.01, 0.00001))
    with closing(Ledger(redis_url, "cluster", "another")) as other:
        assert Times(other).known(["charge"]) == {"charge": Known()}
