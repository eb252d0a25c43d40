"""What is promised of lag and backlog over time: the highest of each minute and hour, gaps as gaps, and an end."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import HOUR_UNIT, MINUTE_UNIT
from bridge.ledger.gauge_history import GaugeKey, read_gauges, write_gauges

#: 12:30 of a day, whatever day.
NOW = 20_000 * 86_400 + 12 * 3_600 + 30 * 60 + 5
MINUTE = NOW // 60
LAG, BACKLOG = GaugeKey("lag", "orders"), GaugeKey("backlog", "shop.charge")


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with closing(Ledger(redis_url, "cluster", "bridge")) as made:
        yield made


def test_each_minute_has_its_value_and_each_hour_its_highest_and_a_time_without_a_bridge_none(ledger: Ledger) -> None:
    for back, records in ((61, 7), (2, 20), (1, 900), (0, 0)):
        write_gauges(ledger, {LAG: records, BACKLOG: records + 1}, MINUTE - back)
    found = read_gauges(ledger, [LAG, BACKLOG], MINUTE_UNIT, 5, NOW)
    assert found[LAG] == (None, None, 20, 900, 0)
    assert found[BACKLOG] == (None, None, 21, 901, 1)
    assert read_gauges(ledger, [LAG], HOUR_UNIT, 3, NOW)[LAG] == (None, 7, 900)
    assert read_gauges(ledger, [LAG], HOUR_UNIT, 168, NOW)[LAG] == (*(None,) * 166, 7, 900)
    assert read_gauges(ledger, [], MINUTE_UNIT, 5, NOW) == {}


def test_all_of_it_expires_and_what_others_wrote_there_costs_a_picture_alone(ledger: Ledger, redis_url: str) -> None:
    write_gauges(ledger, {LAG: 2**40}, MINUTE)
    write_gauges(ledger, {}, MINUTE)
    assert read_gauges(ledger, [LAG], MINUTE_UNIT, 1, NOW)[LAG] == (2**32 - 2,)
    with closing(redis.Redis.from_url(redis_url)) as client:
        names = list(client.scan_iter("*:lag:*"))
        assert sorted((b":hours:" in name, 0 < int(client.ttl(name)) <= 8 * 86_400) for name in names) == [
            (False, True),
            (True, True),
        ]
        for name in names:
            client.delete(name)
            client.hset(name, "a", "b")
    assert read_gauges(ledger, [LAG], MINUTE_UNIT, 1, NOW)[LAG] == (None,)
