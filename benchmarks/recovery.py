"""How soon what a killed worker held runs elsewhere, with the defaults."""

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from celery import Celery

from lossless import transport
from tests.lossless.harness import TRANSPORT_APP, Broker, Worker, wait_until, worker
from tests.servers.redis import RedisServer

VICTIMS = 4


def main() -> None:
    """Kill workers that hold a message each; one more lives, and takes them up."""
    transport.use()
    with TemporaryDirectory(prefix="benchmark-") as folder, RedisServer(appendfsync="everysec") as server:
        broker = Broker(server)
        victims = [Worker(broker.url, Path(folder), worker_prefetch_multiplier=1) for _ in range(VICTIMS)]
        with Celery(broker=broker.url) as app:
            for number in range(VICTIMS):
                app.send_task(f"{TRANSPORT_APP}.nap", (10, number))
        wait_until(lambda: broker.notes.llen("started") == VICTIMS, 30, "each runs one")
        with worker(broker.url, Path(folder), "-c", str(VICTIMS)):
            _report(broker, [_kill(victim) for victim in victims])
        broker.close()


def _kill(victim: Worker) -> float:
    victim.kill()
    return time.monotonic()


def _report(broker: Broker, killed: list[float]) -> None:
    times: list[Any] = []
    for number in range(VICTIMS):
        wait_until(lambda number=number: broker.notes.llen("started") > VICTIMS + number, 120)
        times.append(time.monotonic() - killed[0])
    print(f"recovery: median {statistics.median(times):.1f} s, most {max(times):.1f} s, wanted 60 s at most")
