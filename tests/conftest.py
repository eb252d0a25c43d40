"""Servers for every test: one Kafka and one Redis for the whole run, and own ones for tests that stop them.

Redis is Valkey, which the lock file brings along; with `--redis-server` it is this machine's own. Tests that take what
the lock file does not bring along have the marker `servers`, and run when they are selected: a server that cannot be
started here skips them with the reason; with CI=true it fails them.
"""

import gc
import itertools
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.foreign import letters
from tests.foreign.letters import ForeignTopic
from tests.hypothesis_profiles import register_profiles
from tests.servers import kafka as kafka_server
from tests.servers import newer, postgres
from tests.servers import rabbitmq as rabbitmq_server
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need, not_run, want
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitmqServer
from tests.servers.redis_fixtures import (
    forks,
    mortal_redis,
    own_redis,
    pytest_addoption,
    pytest_configure,
    redis_shared,
    redis_url,
)

__all__ = ["forks", "mortal_redis", "own_redis", "pytest_addoption", "pytest_configure", "redis_shared", "redis_url"]

# Hundreds of processes of the project are started, and each would compile all of it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: The fixtures that start what the lock file does not bring along, and those that start a Redis.
SERVERS = frozenset(
    {"kafka", "own_kafka", "mortal_kafka", "postgres_server", "foreign_letters", "chromium", "rabbitmq", "rabbitmq_4"}
)
REDIS = frozenset({"redis_shared", "own_redis", "mortal_redis"})

register_profiles()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Keep from the collector what lives to the end of the run: it would look through it again and again.

    What tests leave behind it looks through more rarely, too: that took a fifth of the time of the console's tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(700, 10, 100)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the servers that its fixtures start, before `-m` selects."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & SERVERS:
            item.add_marker(pytest.mark.servers)
        if fixtures & REDIS:
            item.add_marker(pytest.mark.redis)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """End with what was not run, and how to get it."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.write_line(not_run(report.longrepr[2] for report in skipped))


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """The run's Kafka. Leave it running: stop `own_kafka` instead."""
    need(kafka_server.missing())
    with KafkaServer() as server:
        yield server


@pytest.fixture
def own_kafka() -> Iterator[KafkaServer]:
    """A Kafka that this test may stop, kill and freeze."""
    need(kafka_server.missing())
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def mortal_kafka() -> Iterator[KafkaServer]:
    """A Kafka for tests that stop it, one after another."""
    need(kafka_server.missing())
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The run's PostgreSQL. Leave it running, and have a database of your own: `new_database`."""
    need(postgres.missing())
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitmqServer]:
    """The run's RabbitMQ; the names of queues keep tests apart."""
    need(rabbitmq_server.missing())
    with RabbitmqServer() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_4() -> Iterator[RabbitmqServer]:
    """A RabbitMQ of version 4."""
    want(rabbitmq_server.missing(newer.ROOT))
    with RabbitmqServer(newer.ROOT) as server:
        yield server


@pytest.fixture
def topic_prefix() -> str:
    """A start for the names of topics and groups that no other test has."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def new_topic(kafka: KafkaServer, topic_prefix: str) -> Callable[..., str]:
    """Make a topic on the run's Kafka: `new_topic("orders", partitions=3)` returns its name."""
    number = itertools.count(1)

    def make(name: str = "", *, partitions: int = 1) -> str:
        topic = f"{topic_prefix}.{name or next(number)}"
        kafka.create_topics(topic, partitions=partitions)
        return topic

    return make


@pytest.fixture(scope="session")
def foreign_letters(kafka: KafkaServer) -> Mapping[str, ForeignTopic]:
    """Topics of the run's Kafka with letters of Spring Kafka and Kafka Connect: `write` says which. Read them only."""
    need(letters.missing())
    return letters.write(kafka, f"foreign{uuid.uuid4().hex[:10]}")
