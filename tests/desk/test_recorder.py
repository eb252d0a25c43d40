"""The recorder as users run it: a real process, on a real Kafka and both databases."""

import pytest

from bridge.deadletters.store.schema import positions
from tests.desk.recorders import bury, has, kept, offsets, recorded, recorder
from tests.processes import Stack, eventually, pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]


@pytest.fixture
def desk(stack: Stack, database_url: str) -> Stack:
    """A stack with a topic of two partitions, its dead letters' topic, and a database that is empty yet."""
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq", partitions=2)
    return stack


def test_what_lies_there_and_what_comes_is_recorded_and_kafka_is_told_how_far(desk: Stack, database_url: str):
    bury(desk, range(50), partition=0)
    process = recorder(desk)
    has(database_url, 50)
    bury(desk, range(50, 60), partition=1)
    has(database_url, 60)
    eventually(lambda: process.metric("bridge_deadletters_lag_records") == 0)
    assert process.metric("bridge_deadletters_recorded_total", what="new") == 60
    assert process.terminate() == 0
    assert kept(recorded(database_url, positions), "partition", "next", "missed") == [(0, 50, 0), (1, 10, 0)]
    desk.environ["BRIDGE_GROUP"] += ".recorder"
    eventually(lambda: desk.committed("orders.dlq") == 60)


def test_with_once_it_ends_when_what_lay_there_is_recorded(desk: Stack, database_url: str):
    bury(desk, range(10))
    assert recorder(desk, "--once", wait=False).ends(40) == 0
    assert offsets(database_url) == list(range(10))
    assert recorder(desk, "--once", wait=False).ends(40) == 0
    assert offsets(database_url) == list(range(10))
