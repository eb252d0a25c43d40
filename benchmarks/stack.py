"""Servers and processes of a benchmark: a real Kafka, a real Redis, a bridge, a worker."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis
from confluent_kafka import Producer

from benchmarks.marks import Marks
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[1]
PARTITIONS = 4
#: The headers of a record by its number.
Headers = Callable[[int], list[tuple[str, bytes]]]


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

    def fill(self, topic: str, count: int, size: int = 200, start: int = 0, headers: Headers | None = None) -> None:
        """Produce records whose values are their numbers, padded to `size` bytes, over all partitions."""
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "linger.ms": 50,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for number in range(start, start + count):
            more: Any = {"headers": headers(number)} if headers else {}
            while True:
                try:
                    producer.produce(topic, b"%-*d" % (size, number), key=b"%d" % (number % 1000), **more)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        left = producer.flush(60)
        assert left == 0, f"{left} records were not produced"

    def marks(self, count: int) -> Marks:
        """A fresh file of marks."""
        return Marks.fresh(self.folder / "marks", count)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """kill -9 of a process and of all its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def stack(**topics: int) -> Iterator[Stack]:
    """A Kafka and a Redis with an append-only file (everysec), for the length of the block, with topics that hold so
    many records.
    """
    with (
        TemporaryDirectory(prefix="benchmark-") as folder,
        KafkaServer() as kafka,
        RedisServer(appendfsync="everysec") as server,
    ):
        on = Stack(kafka, server, Path(folder))
        for topic, count in topics.items():
            kafka.create_topics(topic, partitions=PARTITIONS)
            on.fill(topic, count)
        yield on
