"""Waiting messages: is the worker's memory flat, does each run once, and how late."""

import os
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from celery import Celery

from lossless import transport
from tests.lossless.harness import TRANSPORT_APP, Broker, wait_until, worker
from tests.servers.redis import RedisServer

MESSAGES = int(os.environ.get("WAITING_MESSAGES", "100000"))
#: Seconds over which they are due, evenly.
SPREAD = float(os.environ.get("WAITING_SECONDS", "150"))
#: Messages per second that this machine publishes at least.
PUBLISHED = 2_000


def main() -> None:
    """Publish all before the first is due, let one worker run them, and print the figures."""
    transport.use()
    with TemporaryDirectory(prefix="benchmark-") as folder, RedisServer(appendfsync="everysec") as server:
        broker = Broker(server)
        with worker(broker.url, Path(folder), "-c", "2", level="WARNING", wait=False) as running:
            wait_until(broker.client.pubsub_numpat, 30, "the worker listens")
            before = _resident(running.pid)
            due = _publish(broker)
            spare = due[0] - time.time()
            waiting = _resident(running.pid)
            wait_until(lambda: broker.notes.llen("ran") >= MESSAGES, spare + SPREAD + 120, "all ran")
            _report(broker, due, spare, (before, waiting, _resident(running.pid)))
        broker.close()


def _publish(broker: Broker) -> list[float]:
    begin = time.time() + MESSAGES / PUBLISHED + 5
    due = [begin + SPREAD * number / MESSAGES for number in range(MESSAGES)]
    with Celery(broker=broker.url) as app, app.producer_or_acquire() as producer, producer.batch():
        for number, at in enumerate(due):
            app.send_task(f"{TRANSPORT_APP}.mark_due", (number,), countdown=at - time.time(), producer=producer)
    return due


def _report(broker: Broker, due: list[float], spare: float, memory: tuple[float, float, float]) -> None:
    entries = broker.noted("ran")
    late = sorted(at - due[number] for number, at in entries)
    times = Counter(number for number, _ in entries)
    print(f"waiting: {MESSAGES:,}, due over {SPREAD:g} s; all published {spare:.1f} s before the first was due")
    print("waiting: main process {:.0f} MB before, {:.0f} MB while all waited, {:.0f} MB after".format(*memory))
    print(f"waiting: {len(times):,} ran, {sum(count > 1 for count in times.values())} more than once")
    median, most_99, most_999 = (late[int(len(late) * share)] for share in (0.5, 0.99, 0.999))
    print(f"waiting: late median {median:.3f} s, p99 {most_99:.3f} s, p99.9 {most_999:.3f} s, most {late[-1]:.3f} s")


def _resident(pid: int) -> float:
    """A process's resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6
