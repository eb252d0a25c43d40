"""The limits' script on every Redis: exact, fair, without a start or a lease that is lost for ever."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from bridge.ledger import Account, Fate, Ledger, Mark
from bridge.ledger.limit_state import LEASE, LONGEST_WAIT, LimitedDelivery, LimitLedger, LimitTerms, find_lane
from tests.limit_world import BEGIN, LimitWorld

FIFTY = LimitTerms(per_second=50, burst=50)


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with closing(Ledger(redis_url, "cluster", uuid.uuid4().hex)) as ledger:
        yield ledger


@pytest.fixture
def limits(ledger: Ledger) -> LimitLedger:
    return LimitLedger(ledger)


def one(number: int, lane: int = 1) -> LimitedDelivery:
    return LimitedDelivery(lane, f"orders-0-{number}:charge")


def test_a_burst_starts_at_once_and_the_rest_at_the_rate_within_two_percent(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", FIFTY)
    world.run([(0.0, 1)] * 5_000, 71)
    assert world.count(0, 0.01) == 50
    for begin in (0.01, 5, 10.5):
        assert world.count(begin, begin + 60) == pytest.approx(3_000, rel=0.02)
    # About two looks for a start that waits, and at most a few.
    assert world.claims < 5 * len(world.starts)


def test_without_a_burst_as_many_start_and_never_more(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", FIFTY._replace(burst=1))
    world.run([(0.0, 1)] * 4_000, 61)
    assert world.count(1, 61) == pytest.approx(3_000, rel=0.02)
    assert all(world.count(second, second + 1) <= 63 for second in range(60))


@pytest.mark.parametrize("rate", [0.5, 1, pytest.param(1_000, marks=pytest.mark.slow)])
def test_slow_and_fast_limits_are_exact(limits: LimitLedger, rate: float) -> None:
    world = LimitWorld(limits, "bank", LimitTerms(rate, max(1, int(rate))))
    seconds = 20 if rate > 50 else 300
    world.run([(0.0, 1)] * int(rate * seconds * 1.5), seconds)
    assert world.count(1, seconds) == pytest.approx(rate * (seconds - 1), rel=0.02, abs=2)


def test_what_comes_more_slowly_than_the_rate_never_waits(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", FIFTY)
    world.run([(number / 45, 1) for number in range(1_000)], 25)
    assert len(world.starts) == world.claims == 1_000


def test_a_quiet_lane_waits_less_than_a_second_beside_one_with_thousands_waiting(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", FIFTY)
    world.run([(0.0, 1)] * 4_000 + [(5 + number / 2, 2) for number in range(80)], 60)
    waits = sorted(start.waited for start in world.starts if start.lane == 2)
    assert len(waits) == 80
    assert waits[-1] < 1
    assert world.count(10, 60) == pytest.approx(2_500, rel=0.02)


def test_lanes_with_long_backlogs_share_evenly_and_what_one_leaves_goes_to_the_others(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", FIFTY)
    world.run([(0.0, 1)] * 3_000 + [(5.0, 2)] * 400 + [(5.0, 3)] * 3_000, 80)
    assert world.count(6, 26, lane=2) == pytest.approx(333, rel=0.15)
    assert world.count(6, 26, lane=3) == pytest.approx(333, rel=0.15)
    assert world.count(0, 80, lane=2) == 400
    for begin in range(10, 80, 10):
        assert world.count(begin, begin + 10) == pytest.approx(500, rel=0.02)


def test_never_more_than_the_concurrency_run_and_hardly_ever_fewer(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", LimitTerms(concurrency=20), takes=0.5)
    world.run([(0.0, 1)] * 2_000, 40)
    assert world.most_running == 20
    assert len(world.starts) > 0.9 * 40 * 20 / 0.5


def test_a_quiet_lane_gets_the_next_lease(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", LimitTerms(concurrency=4), takes=0.2)
    world.run([(0.0, 1)] * 1_000 + [(5 + number, 2) for number in range(20)], 30)
    waits = [start.waited for start in world.starts if start.lane == 2]
    assert len(waits) == 20
    assert max(waits) < 2


def test_as_many_noisy_lanes_as_leases_starve_no_quiet_one(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", LimitTerms(concurrency=4), takes=0.5)
    noisy = [(0.0, lane) for lane in range(100, 108) for _ in range(400)]
    world.run([*noisy, *((10.0 + 3 * number, 2) for number in range(6))], 40)
    assert world.count(0, 40, lane=2) >= 5
    assert min(world.count(10, 40, lane) for lane in range(100, 108)) > 0.5 * 30 * 4 / 0.5 / 9
    assert len(world.starts) > 0.9 * 40 * 4 / 0.5


def test_a_lease_whose_runs_are_long_is_not_left_over(limits: LimitLedger) -> None:
    world = LimitWorld(limits, "bank", LimitTerms(concurrency=1), takes=5)
    world.run([(0.0, 1)] * 50 + [(7.0, 2)] * 3, 120)
    assert world.count(0, 120, lane=2) == 3
    assert len(world.starts) >= 22


def test_the_lease_of_a_killed_process_ends_and_its_own_delivery_takes_it_over_at_once(limits: LimitLedger) -> None:
    terms = LimitTerms(concurrency=1)
    assert limits.claim("bank", terms, [one(1)], now=BEGIN) == [0]
    assert limits.claim("bank", terms, [one(2)], now=BEGIN + 1)[0] > 0
    assert limits.claim("bank", terms, [one(1)], now=BEGIN + 2) == [0]
    assert limits.claim("bank", terms, [one(2)], now=BEGIN + LEASE + 1)[0] > 0
    assert limits.claim("bank", terms, [one(2)], now=BEGIN + LEASE + 3) == [0]


def test_a_lease_ends_in_the_step_that_marks_its_delivery(ledger: Ledger, limits: LimitLedger) -> None:
    terms, account = LimitTerms(concurrency=1), Account("charge", "orders", "", 0)
    assert limits.claim("bank", terms, [one(1)]) == [0]
    assert limits.read(["bank"])["bank"].running == 1
    ledger.write([Mark(account, [1], Fate.DONE), limits.lease_end("bank", one(1))])
    assert limits.read(["bank"])["bank"].running == 0
    assert limits.claim("bank", terms, [one(2)]) == [0]


def test_leases_are_renewed_also_in_a_redis_that_has_lost_them(
    ledger: Ledger, limits: LimitLedger, redis_url: str
) -> None:
    terms = LimitTerms(concurrency=1)
    limits.claim("bank", terms, [one(1)])
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.delete(*client.keys(f"*{ledger.group}*"))
    limits.renew("bank", [one(1)])
    assert limits.claim("bank", terms, [one(2)])[0] > 0


def test_starts_that_were_not_used_are_given_back(limits: LimitLedger) -> None:
    terms = LimitTerms(per_second=1, burst=3)
    assert limits.claim("bank", terms, [one(1), one(2), one(3)], now=BEGIN) == [0, 0, 0]
    assert limits.claim("bank", terms, [one(4)], now=BEGIN)[0] > 0
    limits.release("bank", terms, [], unused=2)
    assert limits.claim("bank", terms, [one(4), one(5)], now=BEGIN) == [0, 0]
    assert limits.read(["bank"])["bank"].started == 3


def test_other_numbers_hold_from_the_next_claim_on(limits: LimitLedger) -> None:
    slow = LimitTerms(per_second=0.01, burst=1)
    assert limits.claim("bank", slow, [one(1)], now=BEGIN) == [0]
    assert limits.claim("bank", slow, [one(2)], now=BEGIN + 1)[0] > 0
    assert limits.claim("bank", FIFTY, [one(2)], now=BEGIN + 2)[0] <= 0.2
    assert limits.claim("bank", FIFTY, [one(2)], now=BEGIN + 2.2) == [0]


def test_a_clock_that_was_set_back_holds_nothing_back(limits: LimitLedger) -> None:
    limits.claim("bank", FIFTY, [one(number) for number in range(200)], now=BEGIN)
    limits.claim("bank", FIFTY, [one(1)], now=BEGIN - 86_400)
    assert limits.claim("bank", FIFTY, [one(1)], now=BEGIN - 86_399) == [0]


def test_a_lease_of_a_killed_process_ends_also_if_the_clock_was_set_back(limits: LimitLedger) -> None:
    terms = LimitTerms(concurrency=1)
    limits.claim("bank", terms, [one(1)], now=BEGIN)
    assert limits.claim("bank", terms, [one(2)], now=BEGIN - 3_600)[0] > 0
    assert limits.claim("bank", terms, [one(2)], now=BEGIN - 3_600 + LEASE + 1) == [0]


def test_lanes_of_before_the_clock_was_set_back_take_no_share(limits: LimitLedger) -> None:
    limits.claim("bank", FIFTY, [one(number, number % 100) for number in range(1_000)], now=BEGIN)
    starts = sum(
        limits.claim("bank", FIFTY, [one(10 * step + number) for number in range(6)], now=BEGIN - 3_600 + step / 10)
        .count(0)
        for step in range(600)
    )  # fmt: skip
    assert starts == pytest.approx(3_000, rel=0.02)


@pytest.mark.parametrize("terms", [LimitTerms(0.001), LimitTerms(0.01), LimitTerms(concurrency=1)])
@pytest.mark.parametrize("lanes", [1, 2, 50])
def test_what_waits_looks_again_within_a_minute_and_a_half(limits: LimitLedger, terms: LimitTerms, lanes: int) -> None:
    waits = limits.claim("bank", terms, [one(number, number % lanes) for number in range(200)], takes=900, now=BEGIN)
    assert max(waits) <= LONGEST_WAIT


def test_all_that_wait_are_counted_however_many_lanes_there_are(limits: LimitLedger) -> None:
    limits.claim("bank", FIFTY, [one(number, number % 100) for number in range(1_000)])
    state = limits.read(["bank"])["bank"]
    assert state.waiting == 1_000 - state.started == state.waited
    assert state.wait == pytest.approx(state.waiting / 50, abs=0.1)


def test_what_waited_once_leaves_nothing_behind(limits: LimitLedger, ledger: Ledger, redis_url: str) -> None:
    for hour in range(3):
        limits.claim("bank", FIFTY, [one(number) for number in range(2_000)], now=BEGIN + 3_600 * hour)
    with closing(redis.Redis.from_url(redis_url)) as client:
        (state,) = client.keys(f"*{ledger.group}*:bank")
        fields: list[Any] = client.hkeys(state)
    seconds = [int(field[1:]) for field in fields if field.startswith(b"w1")]
    assert seconds
    assert min(seconds) >= BEGIN + 7_200


def test_its_state_says_how_many_run_and_wait(limits: LimitLedger) -> None:
    terms = LimitTerms(per_second=50, burst=50, concurrency=10)
    assert limits.read(["bank"])["bank"] == (0, 0, 0.0, 0, 0, 0)
    waits = limits.claim("bank", terms, [one(number) for number in range(500)], takes=0.1)
    state = limits.read(["bank"])["bank"]
    assert (state.running, state.started, state.waited, state.lanes) == (10, 10, 490, 1)
    assert state.waiting == 490
    assert sorted(waits)[9:11] == [0, 0.2]


def test_its_memory_is_bounded_however_many_keys_there_are(limits: LimitLedger, ledger: Ledger, redis_url: str) -> None:
    keys = [find_lane("charge", b"%d" % number) for number in range(20_000)]
    for begin in range(0, len(keys), 500):
        limits.claim(
            "bank", FIFTY, [one(begin + number, lane) for number, lane in enumerate(keys[begin : begin + 500])]
        )
    with closing(redis.Redis.from_url(redis_url)) as client:
        found = client.keys(f"*{ledger.group}*")
        assert sum(client.memory_usage(key) or 0 for key in found) < 1_500_000
        assert all(client.ttl(key) > 0 for key in found)
