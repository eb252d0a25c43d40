"""Throughput one by one: kombu's plain Redis transport against ours, side by side.

The same no-op tasks, acks_late, prefork with two processes, Celery's default prefetch. Rounds of the two are
interleaved, so that whatever else the machine does meets both. The messages lie in another list and are given to the
worker, by RENAME, when it is ready; the clock stops when the last one is acknowledged.
"""

import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from celery import Celery

from tests.lossless.harness import TRANSPORT_APP, Broker, wait_until, worker
from tests.servers.redis import RedisServer

ROUNDS = 3
MESSAGES = 6_000


def main() -> None:
    """Run the rounds and print the ratios."""
    found: dict[str, list[tuple[float, float]]] = {"kombu": [], "lossless": []}
    with TemporaryDirectory(prefix="benchmark-") as folder, RedisServer(appendfsync="everysec") as server:
        broker = Broker(server)
        for _ in range(ROUNDS):
            for transport, measured in found.items():
                measured.append(_measure(broker, Path(folder), transport))
                rate, cpu = measured[-1]
                print(f"transport: {transport:10} {rate:8,.0f}/s {cpu:6.0f} us of the main process", flush=True)
        broker.close()
    for index, what in enumerate(("messages/s", "us of main process CPU per message")):
        plain, ours = (statistics.median(one[index] for one in measured) for measured in found.values())
        ratio = max(ours / plain, plain / ours)
        print(f"transport: median {plain:,.0f} against {ours:,.0f} {what}: ratio {ratio:.2f}, wanted 1.5")


def _measure(broker: Broker, folder: Path, transport: str) -> tuple[float, float]:
    """Messages per second of one worker, and microseconds of its main process's CPU per message."""
    broker.client.flushall()
    _publish(broker)
    with worker(broker.url, folder, "-c", "2", level="WARNING", transport=transport, wait=False) as running:
        wait_until(lambda: broker.client.pubsub_numpat() or running.exited, 30, "the worker listens")
        time.sleep(1)
        started, used = time.perf_counter(), _cpu_seconds(running.pid)
        broker.client.rename("aside", "celery")
        wait_until(lambda: not broker.client.llen("celery"), 300, "the queue is empty")
        wait_until(lambda: not broker.taken(), 30, "all is acknowledged")
        used = _cpu_seconds(running.pid) - used
        return MESSAGES / (time.perf_counter() - started), used / MESSAGES * 1e6


def _publish(broker: Broker) -> None:
    """Put messages into a list that no worker reads."""
    with Celery(broker=broker.url) as app, app.producer_or_acquire() as producer, producer.batch():
        for _ in range(MESSAGES):
            app.send_task(f"{TRANSPORT_APP}.noop", queue="aside", producer=producer)


def _cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
