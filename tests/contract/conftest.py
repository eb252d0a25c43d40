"""Every server that the project runs on, behind one face; and, in one place, in what they differ."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from confluent_kafka import Producer

from bridge.embedded import EmbeddedKafka, EmbeddedRedis
from bridge.ledger import Ledger
from tests.decision_world import World, broken_world
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

#: The embedded Kafka gives every topic this many partitions, and so the real one does here.
PARTITIONS = 4


@dataclass(frozen=True)
class AnyKafka:
    """A Kafka under contract.

    `make_topic(name)` makes a topic of 4 partitions; `session_timeout` is the shortest it takes, in ms (the
    embedded one waits for 3 s in a group's first rebalance, and for 1 s less than this in each later one).
    The rest is what the embedded one does otherwise than a real one: `creates_topics`, it knows CreateTopics;
    `limits_records`, it refuses a record that is larger than the topic allows.
    """

    bootstrap_servers: str
    make_topic: Callable[[str], None]
    session_timeout: int
    creates_topics: bool
    limits_records: bool


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.servers)], scope="session")
def any_kafka(request: pytest.FixtureRequest):
    if request.param == "real":
        server: KafkaServer = request.getfixturevalue("kafka")
        yield AnyKafka(
            server.bootstrap_servers,
            lambda topic: server.create_topics(topic, partitions=PARTITIONS),
            session_timeout=6000,
            creates_topics=True,
            limits_records=True,
        )
        return
    with EmbeddedKafka() as embedded:
        producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
        yield AnyKafka(
            embedded.bootstrap_servers,
            # Asking for a topic makes it.
            lambda topic: producer.list_topics(topic, timeout=10) and None,
            session_timeout=4000,
            creates_topics=False,
            limits_records=False,
        )


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.servers)], scope="session")
def any_redis_server(request: pytest.FixtureRequest):
    """The URL of an embedded Valkey and of a real Redis in turn."""
    if request.param == "real":
        server: RedisServer = request.getfixturevalue("redis_shared")
        yield server.url
        return
    with EmbeddedRedis() as embedded:
        yield embedded.url


@pytest.fixture
def there(redis_url: str) -> Iterator[tuple[Any, Ledger]]:
    with redis.Redis.from_url(redis_url) as client, closing(Ledger(redis_url, "", "bridge")) as ledger:
        yield client, ledger


@pytest.fixture
def broken(there: tuple[Any, Ledger]) -> Iterator[World]:
    with broken_world(*there) as world:
        yield world
