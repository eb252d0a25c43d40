"""What a message costs while workers are idle, and how long it takes: kombu's plain Redis transport against ours.

The idle are consumers of threads in one process, each with a connection of its own, as workers have; a message is
published when the one before has been handled, by kombu's plain transport, as any client does. What Redis does anyway
while nothing comes is measured too, and taken off; it is printed beside.
"""

import statistics
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from celery import Celery
from kombu import Connection, Consumer, Queue
from kombu.transport.redis import Transport as PlainTransport

from lossless.transport import Transport
from tests.lossless.harness import TRANSPORT_APP, Broker, wait_until, worker
from tests.servers.redis import RedisServer

IDLE = (1, 10, 50)
MESSAGES = 100
PAYLOAD = "x" * 10_000
TRANSPORTS: dict[str, Any] = {"kombu": PlainTransport, "lossless": Transport}


def main() -> None:
    """Measure both transports in turn."""
    with RedisServer(appendfsync="everysec") as server:
        broker = Broker(server)
        for idle in IDLE:
            for name in TRANSPORTS:
                _measure(broker, name, idle)
        for name in TRANSPORTS:
            print(f"idle: {name:8} {_connections(broker, name, 10)} connections of a consumer of 10 queues", flush=True)
        with TemporaryDirectory(prefix="benchmark-") as folder:
            for name in TRANSPORTS:
                _latency(broker, Path(folder), name)
        broker.close()


class _Idlers:
    def __init__(self, broker: Broker, transport: str, count: int, queues: int = 1) -> None:
        self.broker, self.transport, self.count, self.queues = broker, transport, count, queues
        self.arrived: list[float] = []
        self._stop = threading.Event()
        self._begun = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._consume) for _ in range(count)]

    def _consume(self) -> None:
        names = [Queue(f"q{number}", routing_key=f"q{number}") for number in range(self.queues)]

        def on_message(_: Any, message: Any) -> None:
            self.arrived.append(time.perf_counter())
            message.ack()

        with (
            Connection(self.broker.url, transport=TRANSPORTS[self.transport]) as connection,
            Consumer(connection, names, callbacks=[on_message], prefetch_count=4),
        ):
            self._begun.release()
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=1)

    def __enter__(self) -> "_Idlers":
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            self._begun.acquire()
        time.sleep(2)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _spent(broker: Broker) -> list[float]:
    """Commands (in scripts too), bytes sent, microseconds of CPU, bytes of the append-only file."""
    info = broker.client.info
    commands = sum(one["calls"] for one in info("commandstats").values())
    cpu = info("cpu")
    used = (cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6
    return [commands, info("stats")["total_net_output_bytes"], used, info("persistence")["aof_current_size"]]


def _measure(broker: Broker, transport: str, idle: int) -> None:
    broker.client.flushall()
    late = []
    with ExitStack() as stack:
        idlers = stack.enter_context(_Idlers(broker, transport, idle))
        sender = stack.enter_context(Connection(broker.url, transport=PlainTransport))
        producer = sender.Producer()
        before, began = _spent(broker), time.monotonic()
        for number in range(MESSAGES):
            sent = time.perf_counter()
            producer.publish(PAYLOAD, routing_key="q0", declare=[Queue("q0", routing_key="q0")] if not number else [])
            wait_until(lambda number=number: len(idlers.arrived) > number, 30)  # type: ignore[misc]
            late.append(1000 * (idlers.arrived[-1] - sent))
            time.sleep(0.02)
        middle, seconds = _spent(broker), time.monotonic() - began
        time.sleep(seconds)
        after = _spent(broker)
    rest = [last - then for then, last in zip(middle, after, strict=True)]
    each = [(then - first - quiet) / MESSAGES for first, then, quiet in zip(before, middle, rest, strict=True)]
    centiles = statistics.quantiles(late, n=100)
    print(
        f"idle: {transport:8} {idle:3} idle: {each[0]:6.0f} commands, {each[1] / 1000:7.1f} kB sent, {each[2]:6.0f} us"
        f" of Redis, {each[3] / 1000:6.1f} kB of file a message; {rest[0] / seconds:5.0f} commands/s and"
        f" {rest[3] / seconds:5.0f} B/s of file in between; p50 {centiles[49]:.1f} ms, p99 {centiles[98]:.1f} ms",
        flush=True,
    )


def _connections(broker: Broker, transport: str, queues: int) -> int:
    broker.client.flushall()
    before = {one["id"] for one in broker.client.client_list()}
    with _Idlers(broker, transport, 1, queues):
        return sum(one["id"] not in before for one in broker.client.client_list())


def _latency(broker: Broker, folder: Path, transport: str) -> None:
    """From `send_task` to the task's first line, with one worker of two processes that is idle."""
    broker.client.flushall()
    late = []
    with (
        worker(broker.url, folder, "-c", "2", level="WARNING", transport=transport, wait=False),
        Celery(broker=broker.url) as app,
    ):
        for number in range(MESSAGES + 5):
            sent = time.time()
            app.send_task(f"{TRANSPORT_APP}.mark", (number,))
            wait_until(lambda number=number: len(broker.noted("ran")) > number, 30)  # type: ignore[misc]
            late.append(1000 * (broker.noted("ran")[-1][1] - sent))
            time.sleep(0.02)
    centiles = statistics.quantiles(late[5:], n=100)
    print(f"idle: {transport:8} a task of a worker: p50 {centiles[49]:.1f} ms, p99 {centiles[98]:.1f} ms", flush=True)
