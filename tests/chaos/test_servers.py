"""Redis and Kafka killed and started again, with what they had and without, while deliveries run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.delivery_checks import audit, choose, twice, wait_until_settled
from tests.processes import Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

MESSAGES = 800


@pytest.fixture
def mortal(own_kafka: KafkaServer, own_redis: RedisServer, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    """A stack on servers of its own, in the middle of its work."""
    with Stack(own_kafka.bootstrap_servers, own_redis.url, topic_prefix, tmp_path, "") as stack:
        choose(stack, {"orders": {"commit": "completion"}})
        stack.make_topics("orders", partitions=2)
        stack.bridge()
        stack.worker()
        values = [{"dead": True} if n % 200 == 50 else {"sleep": 0.02} for n in range(MESSAGES)]
        stack.produce("orders", *values)
        eventually(lambda: len(stack.done()) > 100, 30)
        yield stack


def with_its_file(redis: RedisServer) -> None:
    redis.kill()
    redis.start()


def without_its_file(redis: RedisServer) -> None:
    redis.kill()
    for file in (redis.folder / "appendonlydir").iterdir():
        file.unlink()
    redis.start()


def without_its_last_second(redis: RedisServer) -> None:
    """As with appendfsync everysec, when the machine goes down: the end of the file is not there."""
    redis.kill()
    (file,) = (redis.folder / "appendonlydir").glob("*.incr.aof")
    with file.open("r+b") as data:
        data.truncate(int(file.stat().st_size * 0.9))
    redis.start()


def wiped(redis: RedisServer) -> None:
    with redis.client() as client:
        client.flushall()


@pytest.mark.parametrize(
    ("harm", "again"),
    [(with_its_file, 2), (wiped, MESSAGES), (without_its_file, MESSAGES), (without_its_last_second, MESSAGES)],
)
def test_whatever_happens_to_redis_nothing_is_lost(
    mortal: Stack, own_redis: RedisServer, harm: Callable[[RedisServer], None], again: int
):
    before = mortal.done()
    harm(own_redis)
    wait_until_settled(mortal, "orders", 120)
    found = audit(mortal)
    assert found["unaccounted"] == found["handed"] == 0
    letters = [letter.origin for letter in mortal.dead_letters("orders")]
    assert len(letters) == len(set(letters)) == MESSAGES // 200
    assert len(set(mortal.done()) | set(letters)) == MESSAGES
    # With its file: only what was running. Without: what was done since the last commit, at most.
    repeated = twice(mortal)
    assert len(repeated) <= min(again, len(before))


def test_kafka_killed_and_started_again_loses_nothing_and_repeats_nothing(mortal: Stack, own_kafka: KafkaServer):
    own_kafka.kill()
    own_kafka.start()
    wait_until_settled(mortal, "orders", 150)
    assert audit(mortal)["unaccounted"] == 0
    letters = [letter.origin for letter in mortal.dead_letters("orders")]
    assert len(letters) == len(set(letters)) == MESSAGES // 200
    assert len(set(mortal.done())) == MESSAGES - len(letters)
    assert twice(mortal) == {}
