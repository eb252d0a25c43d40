"""What is unsettled of partitions is known for a while after they were given up."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.consumer.rebalance import REMEMBERED_FOR, RebalanceHandler
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import TopicPartition

TIER = "orders.retry.5m"
FIRST, SECOND = (TIER, 0), (TIER, 1)


class Bridge:
    """One with two partitions of a retry topic, and its assignment; Kafka's client does nothing."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.assigned: dict[Place, None] = dict.fromkeys([FIRST, SECOND])
        self.low, self.committed, self.ends = {FIRST: 2, SECOND: 0}, {SECOND: 4}, {FIRST: 7, SECOND: 4}
        kafka: Any = SimpleNamespace(ends=self.ends, forget=lambda places: None)
        reads: Any = SimpleNamespace(assignment=self, give_up=self.give_up)
        committing: Any = SimpleNamespace(commit_last=lambda wait: None)
        metrics: Any = SimpleNamespace(forget=lambda places: None)
        timetable: Any = None
        self.consumer: Any = SimpleNamespace(incremental_unassign=lambda partitions: None)
        self.rebalances = RebalanceHandler(reads, committing, kafka, metrics, timetable, lambda: self.now)

    def __iter__(self) -> Iterator[Place]:
        return iter(self.assigned)

    def give_up(self, places: set[Place]) -> None:
        for place in places:
            for known in (self.assigned, self.low, self.committed, self.ends):
                known.pop(place, None)


@pytest.fixture
def bridge() -> Bridge:
    return Bridge()


def test_what_is_unsettled_begins_at_the_commit_or_where_the_log_does(bridge: Bridge):
    assert bridge.rebalances.unsettled({TIER}) == {FIRST: range(2, 7), SECOND: range(4, 4)}
    assert bridge.rebalances.unsettled({"orders.retry.1h"}) == {}


def test_what_kafka_has_taken_is_known_for_a_while(bridge: Bridge):
    bridge.rebalances.on_lost(bridge.consumer, [TopicPartition(*FIRST)])
    bridge.now += REMEMBERED_FOR
    assert bridge.rebalances.unsettled({TIER}) == {FIRST: range(2, 7), SECOND: range(4, 4)}
    bridge.rebalances.on_revoke(bridge.consumer, [TopicPartition(*SECOND)])
    bridge.now += 1
    assert bridge.rebalances.unsettled({TIER}) == {SECOND: range(4, 4)}


def test_what_has_come_back_is_as_it_is_now(bridge: Bridge):
    bridge.rebalances.on_revoke(bridge.consumer, [TopicPartition(*FIRST)])
    bridge.assigned[FIRST] = None
    bridge.low[FIRST], bridge.ends[FIRST] = 5, 9
    assert bridge.rebalances.unsettled({TIER})[FIRST] == range(5, 9)
