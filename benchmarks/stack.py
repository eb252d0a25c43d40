"""Servers and processes of a benchmark: a real Kafka, a real Redis, a bridge, a worker."""

import mmap
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import redis
from confluent_kafka import Producer

from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[1]
PARTITIONS = 4
ROUNDS = 3


@dataclass
class Stack:
    """What a benchmark runs on."""

    kafka: KafkaServer
    redis_server: RedisServer
    folder: Path

    @property
    def redis(self) -> "redis.Redis[bytes]":
        return redis.Redis.from_url(self.redis_server.url)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "CELERY_BROKER_URL": self.redis_server.url,
            "CELERY_CONFIG_MODULE": "benchmarks.config",
            "HANDLERS": "benchmarks.handlers",
            "BRIDGE_HTTP_PORT": str(free_port()),
            "WORKER_METRICS_PORT": str(free_port()),
            "MARKS": str(self.folder / "marks"),
            **more,
        }

    @contextmanager
    def process(self, *command: str, core: int | None = None, **more: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run `python -m …`, on one core if so asked, until the block is left; its output goes to a file."""
        with open(self.folder / "log", "ab") as log:
            started = subprocess.Popen(
                [*([] if core is None else ["taskset", "--cpu-list", str(core)]), sys.executable, "-m", *command],
                env=self.environment(**more),
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield started
            finally:
                started.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    started.wait(15)
                kill(started)

    def fill(self, topic: str, count: int, size: int = 200) -> None:
        """Produce records whose values are their numbers, padded to `size` bytes, over all partitions."""
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "linger.ms": 50,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, b"%-*d" % (size, number), key=b"%d" % (number % 1000))
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        left = producer.flush(60)
        assert left == 0, f"{left} records were not produced"

    def marks(self, count: int) -> "Marks":
        """A fresh file of marks, one byte a message; behind them as many for what handlers remember."""
        path = self.folder / "marks"
        path.write_bytes(bytes(2 * count))
        return Marks(path, count)


class Marks:
    """Which messages were handled: a byte each in a shared file, so that counting costs the handlers nothing."""

    def __init__(self, path: Path, count: int) -> None:
        self.count = count
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 2 * count)

    def more_than_once(self) -> int:
        """How many were handled more than once."""
        found = self._map[: self.count]
        return self.count - found.count(0) - found.count(1)

    def handled(self) -> int:
        return self.count - self._map[: self.count].count(0)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """kill -9 of a process and of all its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def stack() -> Iterator[Stack]:
    """A Kafka and a Redis with an append-only file (everysec), for the length of the block."""
    with (
        TemporaryDirectory(prefix="benchmark-") as folder,
        KafkaServer() as kafka,
        RedisServer(appendfsync="everysec") as server,
    ):
        yield Stack(kafka, server, Path(folder))


def compare(
    name: str, topic: str, count: int, contestants: dict[str, Callable[[Stack, int], float]], wanted: dict[str, float]
) -> None:
    """Print the rates of contestants in interleaved rounds on one stack, with `count` records in a topic.

    Parameters:
        contestants: the first is the base; each is given the stack and the round's number, and returns its rate.
        wanted: the ratio to the base that is wanted, where one is.
    """
    rates: dict[str, list[float]] = {who: [] for who in contestants}
    with stack() as on:
        on.kafka.create_topics(topic, partitions=PARTITIONS)
        on.fill(topic, count)
        for number in range(ROUNDS):
            for who, rate in contestants.items():
                rates[who].append(rate(on, number))
    report(name, rates, next(iter(contestants)), wanted)


def clock_from_first(count: Callable[[], int], total: int, patience: float = 300) -> float:
    """Seconds from the first that is counted to the last; start-up is not measured.

    Raises:
        TimeoutError: not all were counted in `patience` seconds.
    """
    give_up = time.monotonic() + patience
    while (first := count()) == 0:
        _still(give_up, 0, total)
        time.sleep(0.002)
    begun = time.perf_counter()
    while (now := count()) < total:
        _still(give_up, now, total)
        time.sleep(0.01)
    # What was there at the first look was not seen to be done.
    return (time.perf_counter() - begun) * total / max(1, total - first)


def _still(give_up: float, now: int, total: int) -> None:
    if time.monotonic() > give_up:
        raise TimeoutError(f"{now} of {total} only")


def report(name: str, rates: dict[str, list[float]], base: str, wanted: dict[str, float]) -> None:
    """Print each rate and its ratio to the base, round by round as medians."""
    medians = {who: statistics.median(found) for who, found in rates.items()}
    for who, found in rates.items():
        ratio = medians[who] / medians[base]
        goal = f", wanted {wanted[who]:g} x" if who in wanted else ""
        print(
            f"{name}: {who:32} {medians[who]:>10,.0f}/s ({min(found):,.0f} to {max(found):,.0f})"
            f"  {ratio:6.2f} x {base}{goal}",
            flush=True,
        )
