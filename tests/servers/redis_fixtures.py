"""A Redis for every test, and the process that others are forked off: a plugin of its own, for a run without the rest.

Redis is Valkey, which the lock file brings along; with `--redis-server` it is this machine's own.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.servers import redis as redis_server
from tests.servers.forks import Forks
from tests.servers.missing import need
from tests.servers.redis import RedisServer


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the Redis of the run."""
    parser.addoption(
        "--redis-server", action="store_true", help="the tests' Redis is this machine's redis-server, not Valkey"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the Redis of the run."""
    redis_server.embedded_only = not config.getoption("--redis-server")


@pytest.fixture(scope="session")
def redis_shared() -> Iterator[RedisServer]:
    """The run's Redis. Leave it running: stop `own_redis` instead."""
    need(redis_server.missing())
    # Nobody kills it, so it need not wait for the disk at each write.
    with RedisServer(appendfsync="everysec") as server:
        yield server


@pytest.fixture
def redis_url(redis_shared: RedisServer) -> str:
    """An empty database of the run's Redis, this test's alone."""
    return redis_shared.fresh_url()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis that this test may stop, kill and freeze."""
    need(redis_server.missing())
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def mortal_redis() -> Iterator[RedisServer]:
    """A Redis for tests that stop or freeze it, one after another."""
    need(redis_server.missing())
    # It is stopped in order, and need not wait for the disk at each write.
    with RedisServer(appendfsync="everysec") as server:
        yield server


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The run's process that has imported what processes of the project import: they are forked off it."""
    with closing(Forks()) as made:
        yield made
