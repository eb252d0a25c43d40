"""A worker survives whatever happens to Redis, and goes on by itself: the same process, nothing lost."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.lossless import harness
from tests.lossless.harness import QUICK, Broker, Worker, wait_until
from tests.servers.redis import RedisServer

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]


def started(broker: Broker) -> int:
    """How many naps have begun."""
    return int(broker.notes.llen("started"))


@pytest.fixture(scope="module")
def worker(mortal_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One worker that goes through all faults."""
    folder = tmp_path_factory.mktemp("faults")
    with harness.worker(mortal_redis.url, folder, "-c", "2", broker_transport_options=QUICK) as running:
        yield running


@pytest.fixture(autouse=True)
def goes_on(worker: Worker, broker: Broker, send: Send, ran: Ran) -> Any:
    """After each fault: the worker is the same, runs what comes, listens, and no prefetch slot is gone."""
    yield
    for number in range(9000, 9040):
        send("mark", number)
    wait_until(lambda: set(range(9000, 9040)) <= set(ran()))
    wait_until(lambda: not broker.taken())
    assert not worker.exited
    assert worker.text.count(" ready.") == 1, "the consumer was started anew"


def test_cut_connections(broker: Broker, worker: Worker, send: Send, ran: Ran) -> None:
    for number in range(500):
        send("mark", number)
    for _ in range(25):
        time.sleep(0.04)
        broker.cut()
    wait_until(lambda: set(range(500)) <= set(ran()), 30)


@pytest.mark.slow
def test_a_restart_while_a_message_is_held(broker: Broker, worker: Worker, send: Send, ran: Ran) -> None:
    for number in range(4):
        send("nap", 1.5, number)
    wait_until(lambda: started(broker) == 2)
    broker.restart(down=1.0)
    wait_until(lambda: sorted(ran()) == [0, 1, 2, 3], 20)
    assert started(broker) == 4


@pytest.mark.slow
def test_a_restart_longer_than_the_dead_are_waited_for(
    broker: Broker, worker: Worker, start_worker: Start, send: Send, ran: Ran
) -> None:
    start_worker("-Q", "another")  # it sweeps, and must not take the other for dead
    send("nap", 5, 1)
    wait_until(lambda: started(broker) == 1)
    broker.restart(down=2.5)
    wait_until(lambda: ran() == [1], 20)
    assert started(broker) == 1


@pytest.mark.slow
def test_a_replica_that_refuses_writes(broker: Broker, worker: Worker, send: Send, ran: Ran) -> None:
    send("nap", 1.5, 1)
    wait_until(lambda: started(broker))
    broker.client.replicaof("127.0.0.1", "1")
    time.sleep(1.5)
    broker.client.replicaof("NO", "ONE")
    wait_until(lambda: ran() == [1], 15)
    assert started(broker) == 1


def test_a_full_redis_is_drained(broker: Broker, worker: Worker, send: Send) -> None:
    worker.signal(signal.SIGSTOP)
    for _ in range(200):
        send("noop")
    broker.client.config_set("maxmemory-policy", "noeviction")
    broker.client.config_set("maxmemory", "1mb")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        broker.client.set("x", 1)
    worker.signal(signal.SIGCONT)
    wait_until(lambda: not broker.client.llen("celery") and not broker.taken(), 10)
    broker.client.config_set("maxmemory", "0")


@pytest.mark.slow
def test_a_full_redis_keeps_living_owners_alive(
    broker: Broker, worker: Worker, start_worker: Start, send: Send, ran: Ran
) -> None:
    start_worker("-Q", "another")
    send("nap", 4, 1)
    wait_until(lambda: started(broker))
    broker.client.config_set("maxmemory", "1mb")
    time.sleep(3)
    broker.client.config_set("maxmemory", "0")
    wait_until(lambda: ran() == [1])
    assert started(broker) == 1


@pytest.mark.slow
def test_a_frozen_redis(broker: Broker, worker: Worker, send: Send, ran: Ran) -> None:
    for number in range(300):
        send("mark", number)
    wait_until(lambda: len(ran()) > 20)
    broker.server.freeze()
    time.sleep(3)
    broker.server.thaw()
    wait_until(lambda: set(range(300)) <= set(ran()), 20)


@pytest.mark.slow
def test_a_loading_redis(broker: Broker, worker: Worker, send: Send, ran: Ran) -> None:
    send("nap", 1, 1)
    wait_until(lambda: started(broker))
    broker.client.mset({f"ballast{number}": "x" * 200 for number in range(3000)})
    broker.client.execute_command("CONFIG", "SET", "aof-use-rdb-preamble", "yes")
    broker.client.bgrewriteaof()
    wait_until(lambda: not broker.client.info("persistence")["aof_rewrite_in_progress"])
    broker.server.stop()
    command = broker.server.process.command
    slowly = ["--key-load-delay", "800", "--loading-process-events-interval-bytes", "1024"]
    broker.server.process.command = [*command, *slowly]
    starting = threading.Thread(target=broker.server.start)
    starting.start()
    impatient = redis.Redis(port=broker.port, retry=Retry(NoBackoff(), 0))

    def loading() -> bool:
        try:
            return not impatient.ping()
        except redis.exceptions.BusyLoadingError:
            return True
        except redis.ConnectionError:
            return False

    wait_until(loading, 5, "Redis says LOADING")
    broker.server.process.command = command
    starting.join()
    wait_until(lambda: ran() == [1])
    assert started(broker) == 1


def test_data_gone_while_a_message_is_held(broker: Broker, worker: Worker, send: Send, ran: Ran) -> None:
    send("nap", 1, 1)
    wait_until(lambda: started(broker))
    broker.client.flushall()
    wait_until(lambda: ran() == [1])


@pytest.mark.slow
def test_remote_control_answers_after_a_restart(broker: Broker, worker: Worker, producer: Any) -> None:
    broker.restart()
    wait_until(lambda: producer.control.inspect(timeout=1).ping(), 15)
