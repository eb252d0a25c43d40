"""Another Redis takes over: behind one address, or from a list of brokers. The worker follows, and loses nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.lossless.harness import QUICK, TRANSPORT_APP, Broker, Worker, wait_until, worker
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

OPTIONS = {**QUICK, "dead_after": 1.2}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(RedisServer(appendfsync="everysec", repl_diskless_sync_delay="0")) for _ in "ab"
        )
        yield one, two


@pytest.fixture
def brokers(servers: tuple[RedisServer, RedisServer]) -> Iterator[tuple[Broker, Broker]]:
    """Two masters, both empty."""
    one, two = map(Broker, servers)
    for broker in (one, two):
        if not broker.server.process.running:
            broker.server.start()
        broker.client.replicaof("NO", "ONE")
        broker.client.flushall()
    yield one, two
    one.close()
    two.close()


@pytest.fixture
def proxy(brokers: tuple[Broker, Broker]) -> Iterator[Proxy]:
    with Proxy(brokers[0].port) as proxy:
        yield proxy


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    with ExitStack() as stack:
        yield lambda url, **settings: stack.enter_context(
            worker(url, tmp_path, broker_transport_options=OPTIONS, **settings)
        )


def follow(follower: Broker, leader: Broker) -> None:
    """Have one replicate the other, and wait until it has everything."""
    follower.client.replicaof("127.0.0.1", str(leader.port))
    wait_until(lambda: follower.client.info("replication")["master_link_status"] == "up")


def ran(*brokers: Broker) -> list[int]:
    return [number for broker in brokers for number, _ in broker.noted("ran")]


def sent(app: Celery, number: int, name: str = "mark", *args: Any) -> bool:
    """Whether it could be published: a client may have to try twice while one Redis gives way to the other."""
    try:
        return bool(app.send_task(f"{TRANSPORT_APP}.{name}", (*args, number), retry=False))
    except Exception:
        return False


@pytest.mark.slow
def test_what_a_redis_that_went_back_holds_for_a_living_worker_runs_again(
    brokers: tuple[Broker, Broker], proxy: Proxy, start: Callable[..., Worker]
) -> None:
    one, two = brokers
    follow(two, one)
    running = start(f"redis://127.0.0.1:{proxy.port}/0")
    with Celery(broker=one.url) as app:
        assert sent(app, 1, "nap", 1)
        wait_until(lambda: two.taken() == 1, what="replicated while it runs")
        two.client.replicaof("NO", "ONE")
        wait_until(lambda: not one.taken(), what="done and acknowledged")
    proxy.target = two.port
    proxy.cut()
    wait_until(lambda: ran(two) == [1], what="what two still holds runs again")
    wait_until(lambda: not two.taken())
    assert not running.exited


@pytest.mark.slow
def test_a_redis_that_went_back_without_cutting_a_connection_is_noticed(
    brokers: tuple[Broker, Broker], start: Callable[..., Worker]
) -> None:
    one, two = brokers
    follow(two, one)
    start(one.url)
    with Celery(broker=one.url) as app:
        assert sent(app, 1, "nap", 1)
        wait_until(lambda: two.taken() == 1)
        two.client.replicaof("NO", "ONE")
        wait_until(lambda: not one.taken())
    follow(one, two)
    one.client.replicaof("NO", "ONE")
    assert one.taken() == 1
    wait_until(lambda: not one.taken(), what="put back and run")


def test_a_worker_behind_one_address_follows_the_master(
    brokers: tuple[Broker, Broker], proxy: Proxy, start: Callable[..., Worker]
) -> None:
    one, two = brokers
    running = start(f"redis://127.0.0.1:{proxy.port}/0")
    with Celery(broker=f"redis://127.0.0.1:{proxy.port}/0", broker_transport_options=OPTIONS) as app:
        assert sent(app, 1)
        wait_until(lambda: 1 in ran(one))
        proxy.target = two.port
        follow(one, two)  # the connections to it stay open
        wait_until(lambda: sent(app, 2), what="a client that was refused comes to the new master")
        wait_until(lambda: 2 in ran(two), 10)
        wait_until(lambda: app.control.inspect(timeout=0.5).ping(), 10)
    assert not running.exited
    assert running.count(" ready.") == 1


@pytest.mark.slow
def test_a_worker_with_a_list_of_brokers_goes_to_the_next(
    brokers: tuple[Broker, Broker], start: Callable[..., Worker]
) -> None:
    one, two = brokers
    running = start(f"{one.url};{two.url}")
    with Celery(broker=one.url) as app, Celery(broker=two.url) as other:
        assert sent(app, 1, "nap", 4)
        wait_until(lambda: two.noted("started"))  # its tasks note all they do in the last of the list
        follow(one, two)
        assert sent(other, 2)
        wait_until(lambda: 2 in ran(two), what="one is a replica, two is its master")
        one.server.stop()
        assert sent(other, 3)
        wait_until(lambda: 3 in ran(two), what="one is gone")
    assert not running.exited
