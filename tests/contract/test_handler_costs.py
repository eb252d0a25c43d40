"""What deliveries cost, as workers tell it and bridges read it."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.handler_costs import FADES_IN, DeliveryCost, HandlerCosts, KnownCost


@pytest.fixture
def times(redis_url: str) -> Iterator[HandlerCosts]:
    with closing(Ledger(redis_url, "cluster", "bridge")) as ledger:
        yield HandlerCosts(ledger)


def test_nothing_is_known_of_a_handler_that_has_not_run(times: HandlerCosts) -> None:
    assert times.read_costs(["charge"]) == {"charge": KnownCost()}


def test_what_processes_tell_is_added_up_by_handler(times: HandlerCosts) -> None:
    for _ in range(2):
        times.report("charge", DeliveryCost(10, 0.01, 0.00001, 0.001))
    times.report("notify", DeliveryCost(1, 3.0, 9.0))
    known = times.read_costs(["charge", "notify"])
    charge, notify = known["charge"].cost, known["notify"].cost
    assert charge is not None
    assert charge.mean == pytest.approx(0.0011)
    assert charge.spread == pytest.approx(0, abs=1e-6)
    assert notify == DeliveryCost(1, 3.0, 9.0, 0)


def test_a_handler_that_has_become_slow_is_known_to_be_after_seconds_of_its_work(times: HandlerCosts) -> None:
    times.report("charge", DeliveryCost(100_000, 10.0, 0.001))
    for _ in range(10):
        times.report("charge", DeliveryCost(1, FADES_IN, FADES_IN**2))
    found = times.read_costs(["charge"])["charge"].cost
    assert found is not None
    assert found.mean > FADES_IN / 10


def test_a_lost_process_is_known_of_and_what_deliveries_take_stays_known(times: HandlerCosts) -> None:
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    times.report("charge", DeliveryCost(), lost=True)
    known = times.read_costs(["charge"])["charge"]
    assert known.cost is not None
    assert known.lost is not None
    assert known.lost < 5


def test_a_slow_run_is_known_of_and_what_deliveries_take_stays_known(times: HandlerCosts) -> None:
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    times.report("charge", DeliveryCost(), slow=True)
    known = times.read_costs(["charge"])["charge"]
    assert known.cost == DeliveryCost(10, 0.01, 0.00001)
    assert known.slow is not None
    assert known.slow < 5
    assert known.lost is None


def test_another_group_knows_nothing_of_it(times: HandlerCosts, redis_url: str) -> None:
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    with closing(Ledger(redis_url, "cluster", "another")) as other:
        assert HandlerCosts(other).read_costs(["charge"]) == {"charge": KnownCost()}


@pytest.mark.parametrize(
    "written",
    [
        {"deliveries": "nan"},
        {"deliveries": "many"},
        {"deliveries": "inf"},
        {"deliveries": "-5"},
        {"deliveries": "1e-320"},
        {"seconds": "-100"},
        {"seconds": "inf"},
        {"seconds": "1e300"},
        {"squares": "nan"},
        {"squares": "1e300"},
        {"beside": b"\xff"},
    ],
    ids=str,
)
def test_what_nobody_could_have_measured_is_unknown_and_the_next_report_heals_it(
    times: HandlerCosts, written: dict[str, str], redis_url: str
) -> None:
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    with redis.Redis.from_url(redis_url) as server:
        server.hset(times._key("charge"), mapping=written)
    assert times.read_costs(["charge"]) == {"charge": KnownCost()}
    for _ in range(20):
        times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    found = times.read_costs(["charge"])["charge"].cost
    assert found is not None
    assert found.mean == pytest.approx(0.001, rel=0.1)


@pytest.mark.parametrize("lost", ["soon", "nan", "inf", "-inf", "9999999999"])
def test_a_loss_at_no_time_or_in_the_future_is_unknown(times: HandlerCosts, lost: str, redis_url: str) -> None:
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    with redis.Redis.from_url(redis_url) as server:
        server.hset(times._key("charge"), "lost", lost)
    assert times.read_costs(["charge"])["charge"].lost is None


def test_a_key_of_another_type_is_unknown_for_its_handler_alone_and_the_next_report_heals_it(
    times: HandlerCosts, redis_url: str
) -> None:
    times.report("notify", DeliveryCost(1, 3.0, 9.0))
    with redis.Redis.from_url(redis_url) as server:
        server.set(times._key("charge"), "x")
    assert times.read_costs(["charge", "notify"]) == {
        "charge": KnownCost(),
        "notify": KnownCost(DeliveryCost(1, 3.0, 9.0)),
    }
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    assert times.read_costs(["charge"])["charge"].cost == DeliveryCost(10, 0.01, 0.00001)


@pytest.mark.parametrize("written", ["no JSON", "[]", "null", '"text"', b"\xff"])
def test_an_announcement_that_is_none_is_no_member(redis_url: str, written: str) -> None:
    with closing(Ledger(redis_url, "cluster", "group")) as ledger, redis.Redis.from_url(redis_url) as server:
        members = GroupMembers(ledger, "workers")
        members.announce("one", {"queues": ["q"]})
        members.announce("another", {})
        members.announce("a third", {})
        server.set(members._key("of", "another"), written)
        server.delete(members._key("of", "a third"))
        server.rpush(members._key("of", "a third"), "x")
        assert {name: member["queues"] for name, member in members.living().items()} == {"one": ["q"]}
        for name in ("one", "another", "a third"):
            members.leave(name)


def test_how_many_run_side_by_side_stays_known_until_another_number_is_told(times: HandlerCosts) -> None:
    times.report("charge", DeliveryCost(10, 0.01, 0.00001), at_once=40)
    times.report("charge", DeliveryCost(10, 0.01, 0.00001))
    assert times.read_costs(["charge", "notify"])["charge"].at_once == 40
    times.report("charge", DeliveryCost(), at_once=7)
    known = times.read_costs(["charge", "notify"])
    assert (known["charge"].at_once, known["notify"].at_once) == (7, 1)
