"""Beyond one Redis: groups, or the topics of one application, each on a Redis of their own and one Kafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import AUDITED, audit, choose, json_of, wait_until_settled
from tests.processes import Stack, eventually
from tests.servers.redis import RedisServer

RECORDS = 200
DEAD = tuple(range(0, RECORDS, 50))
FAILING = tuple(range(7, RECORDS, 20))


@pytest.fixture(scope="module")
def other_redis() -> Iterator[RedisServer]:
    with RedisServer(appendfsync="everysec") as server:
        yield server


def values() -> list[dict[str, Any]]:
    return [
        {"id": number, **({"dead": True} if number in DEAD else {"fail": 1} if number in FAILING else {})}
        for number in range(RECORDS)
    ]


def deployment(stack: Stack, name: str, broker: str, folder: Path, topic: str) -> Stack:
    """A bridge and a worker of their own group, for one topic, on a Redis; the topics are those of `stack`."""
    (folder / name).mkdir()
    environ = {"BRIDGE_GROUP": f"{stack.prefix}.{name}", "TEST_TOPIC": topic}
    made = Stack(stack.kafka, broker, stack.prefix, folder / name, "", **environ)
    choose(made, {topic: {"commit": "completion"}})
    made.environ["HANDLERS"] = "tests.handlers.split"
    made.bridge(wait=False)
    made.worker("-c", "1", wait=False)
    return made


def all_once(stack: Stack, topic: str, placed: list[str]) -> None:
    """Each record was done once by this deployment, or is its dead letter, and its own Redis accounts for all."""
    wait_until_settled(stack, topic)
    assert sorted(stack.done()) == sorted(where for number, where in enumerate(placed) if number not in DEAD)
    found = audit(stack, topic)
    dead = len(DEAD)
    assert {name: found[name] for name in AUDITED} == {
        **dict.fromkeys(AUDITED, 0),
        "done": RECORDS - dead,
        "dead": dead,
    }
    assert found["clean"]
    letters = [letter for letter in stack.dead_letters(topic) if letter.ours["bridge_group"] == stack.queue]
    assert sorted(letter.origin for letter in letters) == sorted(placed[number] for number in DEAD)


def strangers(stack: Stack, other: Stack) -> list[bytes]:
    """Keys of one deployment in the other's Redis."""
    with stack.redis() as client:
        return [key for key in client.keys("*") if other.queue.encode() in key]


@pytest.mark.slow
def test_two_groups_of_one_topic_have_a_redis_each_and_each_handles_every_record_once(
    stack: Stack, other_redis: RedisServer, tmp_path: Path
):
    stack.make_topics("orders", partitions=2)
    placed = stack.produce("orders", *values())
    brokers = (stack.broker, other_redis.fresh_url())
    one, two = (
        deployment(stack, name, broker, tmp_path, "orders")
        for name, broker in zip(("one", "two"), brokers, strict=True)
    )
    with one, two:
        for here, there in ((one, two), (two, one)):
            all_once(here, "orders", placed)
            assert strangers(here, there) == []
            found = json_of(here, "status")
            assert (len(found["bridges"]), len(found["workers"])) == (1, 1)
            (problem,) = found["problems"]
            assert f"{len(DEAD)} deliveries of split.orders are dead" in problem


@pytest.mark.slow
def test_topics_of_one_application_are_split_over_two_redis_by_group_and_handlers(
    stack: Stack, other_redis: RedisServer, tmp_path: Path
):
    stack.make_topics("orders", "payments", partitions=2)
    placed = {topic: stack.produce(topic, *values()) for topic in ("orders", "payments")}
    orders = deployment(stack, "one", stack.broker, tmp_path, "orders")
    payments = deployment(stack, "two", other_redis.fresh_url(), tmp_path, "payments")
    with orders, payments:
        all_once(orders, "orders", placed["orders"])
        all_once(payments, "payments", placed["payments"])
        assert strangers(orders, payments) == strangers(payments, orders) == []
        eventually(lambda: orders.waiting() == payments.waiting() == 0, 10)


@pytest.mark.slow
def test_a_redis_that_is_away_holds_up_its_own_group_alone(stack: Stack, own_redis: RedisServer, tmp_path: Path):
    stack.make_topics("orders", partitions=2)
    one = deployment(stack, "one", stack.broker, tmp_path, "orders")
    two = deployment(stack, "two", own_redis.url, tmp_path, "orders")
    with one, two:
        stack.produce("orders", {"id": -1})
        eventually(lambda: one.done() and two.done(), 40, "both groups work")
        own_redis.stop()
        placed = stack.produce("orders", *values())
        living = sorted(where for number, where in enumerate(placed) if number not in DEAD)
        eventually(lambda: len(one.done()) == len(living) + 1, 40, "the other group goes on")
        assert len(two.done()) == 1
        own_redis.start()
        eventually(lambda: set(living) <= set(two.done()), 60, "it comes after, with all of them")
        wait_until_settled(two, "orders")
        assert audit(two)["clean"]
