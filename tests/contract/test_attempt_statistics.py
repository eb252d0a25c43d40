"""What is promised of counts by the minute and the hour: they are added up, bounded, and end by themselves."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import (
    HOUR_UNIT,
    MINUTE_UNIT,
    CountKey,
    DurationKey,
    Durations,
    add_counts,
    read_counts,
    read_history,
)
from bridge.ledger.duration_histogram import BUCKETS

#: 12:30 of a day, whatever day.
NOON = 20_000 * 86_400 + 12 * 3_600
NOW = NOON + 30 * 60 + 5
MINUTE = NOW // 60
CHARGE = ("orders", "shop.charge")


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with closing(Ledger(redis_url, "cluster", "bridge")) as made:
        yield made


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(redis_url)) as made:
        yield made


def test_of_a_handler_that_did_nothing_all_is_zero(ledger: Ledger) -> None:
    found = read_counts(ledger, [CHARGE], NOW)[CHARGE]
    assert found.minutes["handled"] == (0,) * 60
    assert found.hours["dead"] == (0,) * 24
    assert read_counts(ledger, [], NOW) == {}


def test_what_processes_tell_is_added_up_by_what_it_is_and_when(ledger: Ledger) -> None:
    for _ in range(2):
        add_counts(ledger, {CountKey(*CHARGE, "handled", MINUTE): 5, CountKey(*CHARGE, "failed", MINUTE - 1): 1})
    add_counts(ledger, {CountKey("orders", "shop.notify", "handled", MINUTE): 9, CountKey(*CHARGE, "dead", MINUTE): 2})
    found = read_counts(ledger, [CHARGE], NOW)[CHARGE]
    assert found.minutes["handled"] == (0,) * 59 + (10,)
    assert found.minutes["failed"] == (0,) * 58 + (2, 0)
    assert found.minutes["dead"][-1] == 2
    assert found.hours["handled"] == (0,) * 23 + (10,)
    assert sum(found.minutes["replayed"]) == 0


def test_the_last_hour_and_day_go_on_over_the_turn_of_both(ledger: Ledger) -> None:
    midnight = 20_001 * 86_400
    minute = midnight // 60
    add_counts(ledger, {CountKey(*CHARGE, "handled", minute + back): 100 + back for back in (-90, -59, -58, -1, 0, 1)})
    found = read_counts(ledger, [CHARGE], midnight + 60)[CHARGE]
    assert found.minutes["handled"] == (42, *(0,) * 56, 99, 100, 101)
    assert found.hours["handled"][-3:] == (10, 41 + 42 + 99, 201)
    later = read_counts(ledger, [CHARGE], midnight + 23 * 3_600)[CHARGE]
    assert later.hours["handled"] == (201, *(0,) * 23)


def test_an_hour_of_a_handler_takes_ten_kilobytes_at_most_and_a_day_four_and_all_of_it_expires(
    ledger: Ledger, client: redis.Redis
) -> None:
    everything = range(MINUTE - 3 * 1_440, MINUTE + 1, 7)
    counts = {CountKey(*CHARGE, "replayed", minute): 1 for minute in everything}
    add_counts(ledger, counts, {DurationKey(*CHARGE, minute): {BUCKETS - 1: 1} for minute in everything})
    there = [(name, int(client.strlen(name)), int(client.ttl(name))) for name in client.scan_iter("*:counts:*")]
    assert 9_000 < max(size for name, size, _ in there if b":minutes:" in name) <= 60 * (4 + BUCKETS) * 4 <= 10_240
    assert max(size for name, size, _ in there if b":hours:" in name) <= 24 * (4 + BUCKETS) * 4 <= 4_096
    assert all(0 < ttl <= 2 * 3_600 for name, _, ttl in there if b":minutes:" in name)
    assert all(0 < ttl <= 8 * 86_400 for _, _, ttl in there)


def test_durations_cost_redis_no_command_more(ledger: Ledger, client: redis.Redis) -> None:
    def count_commands(durations: Durations) -> int:
        client.config_resetstat()
        add_counts(ledger, {CountKey(*CHARGE, "handled", MINUTE): 3}, durations)
        return sum(found["calls"] for name, found in client.info("commandstats").items() if "config" not in name)

    add_counts(ledger, {CountKey(*CHARGE, "handled", MINUTE): 1})
    alone, together = count_commands({}), count_commands({DurationKey(*CHARGE, MINUTE): {0: 1, 5: 2}})
    assert alone == together > 0


def test_the_last_week_has_counts_and_durations_by_the_hour_of_several_topics_together(ledger: Ledger) -> None:
    refunds = ("refunds", "shop.charge")
    for back in (0, 5, 167 * 60, 168 * 60):
        minute = MINUTE - back
        add_counts(
            ledger,
            {CountKey(*CHARGE, "handled", minute): 2, CountKey(*refunds, "handled", minute): 1},
            {DurationKey(*CHARGE, minute): {7: 2}, DurationKey(*refunds, minute): {9: 1}},
        )
    week = read_history(ledger, [CHARGE, refunds], HOUR_UNIT, 168, NOW)
    assert week.counts["handled"] == (3, *(0,) * 166, 6)
    assert [len(week.durations), *(len(each) for each in week.durations[:2])] == [168, BUCKETS, BUCKETS]
    assert (week.durations[0][7], week.durations[-1][7], week.durations[-1][9]) == (2, 4, 2)
    quarter = read_history(ledger, [CHARGE], MINUTE_UNIT, 15, NOW)
    assert quarter.counts["handled"] == (*(0,) * 9, 2, *(0,) * 4, 2)
    assert sum(map(sum, quarter.durations)) == 4
    assert read_history(ledger, [], MINUTE_UNIT, 15, NOW).counts["dead"] == (0,) * 15


def test_a_wiped_redis_and_what_others_wrote_there_cost_a_picture_alone(ledger: Ledger, client: redis.Redis) -> None:
    add_counts(ledger, {CountKey(*CHARGE, "handled", MINUTE): 2**32 - 1})
    add_counts(ledger, {CountKey(*CHARGE, "handled", MINUTE): 7})
    assert read_counts(ledger, [CHARGE], NOW)[CHARGE].minutes["handled"][-1] == 2**32 - 1
    for name in list(client.scan_iter("*:counts:*")):
        client.set(name, b"x" * 5_000)
    assert len(read_counts(ledger, [CHARGE], NOW)[CHARGE].minutes["handled"]) == 60
    client.flushall()
    client.hset(f"ledger::bridge:counts:orders:shop.charge:minutes:{NOW // 3_600}", "a", "b")
    assert read_counts(ledger, [CHARGE], NOW)[CHARGE].minutes["handled"] == (0,) * 60
    assert sum(map(sum, read_history(ledger, [CHARGE], MINUTE_UNIT, 60, NOW).durations)) == 0
