"""Chaos: workers killed, frozen and cut off, Redis restarted, under load; ours, and the plain transport
beside it.

As a program it prints the figures of both: ``python -m tests.chaos.test_transport_chaos [--messages 50000]``.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.lossless.harness import TRANSPORT_APP, Broker, Worker, wait_until
from tests.servers.redis import RedisServer

OPTIONS = {"dead_after": 3, "socket_timeout": 5, "socket_connect_timeout": 5}
#: The plain transport at its best: what it left unacked comes back after seconds instead of an hour.
PLAIN_OPTIONS = {
    "visibility_timeout": 5,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
}
COUNT = f"{TRANSPORT_APP}.count"


@dataclass
class Schedule:
    """How often what happens."""

    messages: int = 50_000
    kills: int = 50
    cuts: int = 200
    restarts: int = 5
    frozen: int = 20
    fed: int = 50


@dataclass
class Chaos:
    """One run of the schedule against one transport."""

    directory: Path
    plain: bool
    schedule: Schedule
    exits: int = 0
    stalls: int = 0
    published: int = 0
    workers: int = 0
    dice: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self) -> None:
        self.server = RedisServer(appendfsync="everysec")
        self.server.start()
        self.broker = Broker(self.server)
        self.app = Celery(broker=self.broker.url)

    def publish(self, count: int) -> None:
        """Publish, from a client that nothing happens to."""
        with self.app.producer_or_acquire() as producer, producer.batch():
            for number in range(self.published, self.published + count):
                self.app.send_task(COUNT, (number,), producer=producer)
        self.published += count

    def worker(self) -> Worker:
        """Start a worker."""
        self.workers += 1
        settings: dict[str, Any] = {
            "broker_transport_options": PLAIN_OPTIONS if self.plain else OPTIONS,
            "broker_channel_error_retry": True,
        }
        transport = "kombu" if self.plain else "lossless"
        return Worker(self.broker.url, self.directory, "-c", "2", transport=transport, **settings)

    def kill(self, worker: Worker) -> None:
        """kill -9, noting whether it had ended by itself."""
        self.exits += worker.exited
        worker.kill()

    def under_load(self) -> None:
        """Kill workers while they work; cut connections and restart Redis meanwhile."""
        schedule = self.schedule
        restart_at = {round((i + 0.5) * schedule.kills / max(1, schedule.restarts)) for i in range(schedule.restarts)}
        for number in range(schedule.kills):
            worker = self.worker()
            cuts = (number + 1) * schedule.cuts // schedule.kills - number * schedule.cuts // schedule.kills
            for _ in range(cuts):
                time.sleep(self.dice.uniform(0.02, 0.15))
                self.broker.cut()
            if number in restart_at:
                self.broker.restart()
                time.sleep(1.5)
            time.sleep(self.dice.uniform(0.0, 0.5))
            self.kill(worker)

    def drain(self, seconds: float = 240) -> None:
        """Have one worker do the rest; one that consumes nothing for 20 s has stalled, and is replaced."""
        worker, deadline = self.worker(), time.monotonic() + seconds
        progress, at = self.left(), time.monotonic()
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.2)
            if self.left() != progress:
                progress, at = self.left(), time.monotonic()
            if worker.exited or time.monotonic() - at > 20:
                self.stalls += not worker.exited
                self.kill(worker)
                worker, at = self.worker(), time.monotonic()
        worker.kill()

    def left(self) -> int:
        """How many messages are queued or held."""
        return int(self.broker.client.llen("celery")) + self.broker.taken()

    def frozen_and_fed(self) -> None:
        """Freeze an idle worker, feed the queue, kill the worker."""
        for _ in range(self.schedule.frozen):
            worker = self.worker()
            worker.freeze()
            self.publish(self.schedule.fed)
            time.sleep(0.1)
            self.kill(worker)
            self.drain()

    def run(self) -> dict[str, float]:
        """Run the schedule and return the figures."""
        started = time.monotonic()
        try:
            self.publish(self.schedule.messages - self.schedule.frozen * self.schedule.fed)
            self.under_load()
            self.drain()
            self.frozen_and_fed()
            wait_until(lambda: not self.left(), 5, "nothing is left")
            runs = Counter(int(entry.partition(b":")[0]) for entry in self.broker.notes.smembers("runs"))
        finally:
            self.app.close()
            self.broker.close()
            self.server.close()
        return {
            "published": self.published,
            "lost": sum(number not in runs for number in range(self.published)),
            "ran more than once": sum(count > 1 for count in runs.values()),
            "unplanned exits": self.exits,
            "stalled workers": self.stalls,
            "workers": self.workers,
            "seconds": round(time.monotonic() - started),
        }


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_nothing_is_lost_whatever_happens(tmp_path: Path) -> None:
    figures = Chaos(tmp_path, False, Schedule(messages=6000, kills=8, cuts=30, restarts=2, frozen=3)).run()
    assert (figures["lost"], figures["unplanned exits"], figures["stalled workers"]) == (0, 0, 0), figures


def main(make: Callable[..., Chaos] = Chaos) -> None:
    """Run both transports and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Schedule()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", choices=("plain", "ours"))
    args = vars(parser.parse_args())
    only = args.pop("only")
    for which in ("ours", "plain"):
        if only in (None, which):
            with tempfile.TemporaryDirectory() as name:
                print(which, make(Path(name), which == "plain", Schedule(**args)).run(), flush=True)


if __name__ == "__main__":
    main()
