"""The project's own processes, run as users run them: `python -m bridge` and `celery -A tasks worker`.

A `Stack` is one group of bridges and one set of workers on a Kafka and a Redis; what it started ends with it, and
the ends of its logs are shown when a test fails.
"""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.message_locations import everywhere
from tests.project_process import ROOT, Process, eventually, forked, from_nothing, pytest_runtest_makereport
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer
from tests.servers.server import Server

__all__ = ["ROOT", "Process", "eventually", "forked", "from_nothing", "pytest_runtest_makereport"]
#: TEST_GROUP_PROTOCOL=consumer lets all bridges and recorders join by the new protocol (KIP-848). Its times are the
#: broker's: those of tests/servers/kafka.py are the same as these. A session that a test chooses for a bridge is then
#: the group's setting at the broker.
PROTOCOL = {"KAFKA_GROUP_PROTOCOL": protocol} if (protocol := os.environ.get("TEST_GROUP_PROTOCOL")) else {}
TIMES = {"KAFKA_SESSION_TIMEOUT_MS": "3000", "KAFKA_HEARTBEAT_INTERVAL_MS": "500"}
#: Variables of the surroundings that would change what is tested.
OURS = ("KAFKA_", "CELERY_", "BRIDGE_", "WORKER_", "LEDGER_", "DEADLETTERS_", "HANDLERS", "PROMETHEUS_")


class Served(Process):
    """A process that serves pages over HTTP."""

    port = 0

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; status 0 where nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0.0 where there are none."""
        page = "/metrics?by=partition" if "partition" in labels else "/metrics"
        families = text_string_to_metric_families(self.get(page)[1])
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def ready(self) -> bool:
        """Whether /readyz says that it consumes."""
        return self.get("/readyz")[0] == 200


@dataclass(frozen=True)
class Run:
    """One call of a handler of tests/handlers, as it noted it."""

    handler: str
    coordinates: str
    attempt: int
    attempts: dict[str, int]
    value: Any
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    outcome: str
    time: float
    pid: int


def headers_of(record: Record) -> list[tuple[str, bytes | None]]:
    """The headers of a record as a list; confluent_kafka's types allow for what it never gives."""
    return list(record.headers() or [])  # type: ignore[arg-type]


@dataclass(frozen=True)
class DeadLetter:
    """A record of a dead-letter topic: the producer's headers apart from ours, which stand behind them."""

    record: Record

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return headers_of(self.record)

    @property
    def ours(self) -> dict[str, str]:
        start = next(place for place, (name, _) in enumerate(self.headers) if name == "origin_topic")
        return {name: (value or b"").decode("ascii") for name, value in self.headers[start:]}

    @property
    def theirs(self) -> list[tuple[str, bytes | None]]:
        start = next(place for place, (name, _) in enumerate(self.headers) if name == "origin_topic")
        return self.headers[:start]

    @property
    def origin(self) -> str:
        return "{origin_topic}-{origin_partition}-{origin_offset}".format(**self.ours)


class Stack:
    """Bridges and workers of one consumer group, in a folder for their logs and the handlers' notes.

    Parameters: bootstrap servers of Kafka, the Celery broker's URL, a prefix that all topics and the group have,
    a folder, the modules of handlers, and environment variables for all processes.
    """

    def __init__(self, kafka: str, broker: str, prefix: str, folder: Path, handlers: str, **environ: str) -> None:
        self.kafka, self.broker, self.prefix, self.folder = kafka, broker, prefix, folder
        self.runs_file = folder / "runs"
        self.runs_file.touch()
        around = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.environ = {
            **around,
            "KAFKA_BOOTSTRAP_SERVERS": kafka,
            "CELERY_BROKER_URL": broker,
            "BRIDGE_GROUP": f"{prefix}.group",
            "HANDLERS": handlers,
            "TEST_PREFIX": prefix,
            "TEST_RUNS": str(self.runs_file),
            "PYTHONUNBUFFERED": "1",
            # A killed bridge's partitions come back soon (see docs/reference/settings.md for the default).
            **TIMES,
            **PROTOCOL,
            **environ,
        }
        self._processes: list[Process] = []
        self.producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "log_level": 0})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()

    # Processes

    def start(self, name: str, *command: str, cwd: Path = ROOT, kind: type[Process] = Process, **environ: Any) -> Any:
        """Start any command with the stack's environment."""
        whole = {**self.environ, **environ}
        if whole.get("KAFKA_GROUP_PROTOCOL") == "consumer":
            whole = {name: value for name, value in whole.items() if name not in TIMES}
        process = kind(name, command, whole, self.folder, cwd)
        self._processes.append(process)
        return process

    def bridge(self, *, wait: bool = True, **environ: Any) -> Served:
        """`python -m bridge`; with `wait`, until it consumes."""
        port = environ.setdefault("BRIDGE_HTTP_PORT", str(free_port()))
        if PROTOCOL and environ.get("KAFKA_SESSION_TIMEOUT_MS"):
            self._choose_session(environ["KAFKA_SESSION_TIMEOUT_MS"])
        bridge: Served = self.start("bridge", sys.executable, "-m", "bridge", kind=Served, **environ)
        bridge.port = int(port)
        if wait:
            eventually(lambda: self._still(bridge) and bridge.ready(), 40, "the bridge consumes")
        return bridge

    def worker(self, *arguments: str, wait: bool = True, **environ: Any) -> Served:
        """`celery -A tasks worker -c 2`; with `wait`, until it is ready."""
        port = environ.setdefault("WORKER_METRICS_PORT", str(free_port()))
        # Without mingle: a second at each start, in which a worker asks for others that are not there.
        options = ("-c", "2", "-l", "INFO", "--without-mingle", *arguments)
        command = (sys.executable, "-m", "celery", "-A", "tasks", "worker", *options)
        worker: Served = self.start("worker", *command, kind=Served, **environ)
        worker.port = int(port)
        if wait:
            worker.says(" ready.")
        return worker

    def _choose_session(self, ms: str) -> None:
        name = self.environ["BRIDGE_GROUP"]
        chosen = ConfigEntry("consumer.session.timeout.ms", ms, incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, name, incremental_configs=[chosen])
        admin = AdminClient({"bootstrap.servers": self.kafka, "log_level": 0})
        for future in admin.incremental_alter_configs([group]).values():
            future.result(30)

    @staticmethod
    def _still(process: Process) -> bool:
        if process.exit_code is not None:
            pytest.fail(f"{process.name} ended with {process.exit_code}:\n{process.text}")
        return True

    # Kafka

    def make_topics(self, *names: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Make topics of this stack."""
        admin = AdminClient({"bootstrap.servers": self.kafka, "log_level": 0})
        topics = [NewTopic(self.topic(name), partitions, 1, config=config or {}) for name in names]
        for future in admin.create_topics(topics).values():
            future.result(30)

    def has_topic(self, name: str) -> bool:
        """Whether a topic of this stack exists."""
        known = AdminClient({"bootstrap.servers": self.kafka}).list_topics(timeout=10).topics
        return self.topic(name) in known

    def topic(self, name: str) -> str:
        """The whole name of a topic of this stack."""
        return f"{self.prefix}.{name}"

    def produce(self, topic: str, *values: Any, **options: Any) -> list[str]:
        """Produce values (what is no bytes and not None as JSON); return the records' coordinates."""
        placed: dict[int, str] = {}
        name = self.topic(topic)
        for number, value in enumerate(values):
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

            def acknowledged(error: Any, record: Record, number: int = number) -> None:
                assert error is None, error
                placed[number] = f"{record.topic()}-{record.partition()}-{record.offset()}"

            self.producer.produce(name, raw, on_delivery=acknowledged, **options)
            self.producer.poll(0)
        assert self.producer.flush(30) == 0
        return [placed[number] for number in range(len(values))]

    def committed(self, topic: str) -> int:
        """The sum of the group's committed offsets."""
        with self._reader(self.environ["BRIDGE_GROUP"]) as reader:
            partitions = reader.list_topics(self.topic(topic), timeout=10).topics[self.topic(topic)].partitions
            asked = [TopicPartition(self.topic(topic), number) for number in partitions]
            return sum(max(0, found.offset) for found in reader.committed(asked, timeout=10))

    def records(self, topic: str) -> list[Record]:
        """All records that a topic holds now; none where it does not exist."""
        name = self.topic(topic)
        with self._reader("nobody") as reader:
            known = reader.list_topics(name, timeout=10).topics[name]
            if known.error is not None:
                return []
            ends = {n: reader.get_watermark_offsets(TopicPartition(name, n), timeout=10) for n in known.partitions}
            wanted = sum(high - low for low, high in ends.values())
            reader.assign([TopicPartition(name, number, low) for number, (low, _) in ends.items()])
            found: list[Record] = []
            deadline = time.monotonic() + 30
            while len(found) < wanted and time.monotonic() < deadline:
                # Of compacted topics and transactions some never come; on a busy machine the rest takes its time.
                if came := [record for record in reader.consume(1000, 0.2) if record.error() is None]:
                    deadline = time.monotonic() + 30
                found += came
            return found

    def dead_letters(self, topic: str) -> list[DeadLetter]:
        """All dead letters of a topic."""
        return [DeadLetter(record) for record in self.records(f"{topic}.dlq")]

    def dead(self, topic: str, count: int, within: float = 30.0) -> list[DeadLetter]:
        """Wait until a topic has so many dead letters."""
        letters: list[DeadLetter] = eventually(
            lambda: found if len(found := self.dead_letters(topic)) >= count else None,
            within,
            f"{count} dead letters of {topic}",
        )
        assert len(letters) == count
        return letters

    def _reader(self, group: str) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self.kafka, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )

    # The handlers' notes

    def runs(self, handler: str = "", coordinates: str = "") -> list[Run]:
        """The calls of handlers so far, in the order in which they were noted."""
        # The last may be half written.
        lines = self.runs_file.read_text().rpartition("\n")[0].splitlines()
        found = (_run(json.loads(line)) for line in lines)
        return [
            run
            for run in found
            if run.handler.endswith(handler) and (not coordinates or run.coordinates == coordinates)
        ]

    def done(self, handler: str = "") -> list[str]:
        """The coordinates of what a handler has done."""
        return [run.coordinates for run in self.runs(handler) if run.outcome == "done"]

    # The Celery broker

    def redis(self) -> "redis.Redis":
        return redis.Redis.from_url(self.broker, socket_timeout=5)

    @property
    def queue(self) -> str:
        """The default Celery queue: the group's name."""
        return self.environ["BRIDGE_GROUP"]

    def waiting(self, queue: str = "") -> int:
        """Messages in a queue, by default the group's."""
        with self.redis() as client:
            return int(client.llen(queue or self.queue))

    def queued_ids(self) -> list[str]:
        """The task ids of the messages in the group's queue."""
        with self.redis() as client:
            return [json.loads(raw)["headers"]["id"] for raw in client.lrange(self.queue, 0, -1)]

    def held_ids(self) -> list[str]:
        """The task ids of what workers have taken and not acknowledged, and of what waits for its time."""
        with self.redis() as client:
            return sorted(json.loads(entry)["headers"]["id"] for entry in everywhere(client))


def _run(data: dict[str, Any]) -> Run:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    data["key"] = raw(data["key"])
    data["headers"] = tuple((name, raw(value)) for name, value in data["headers"])
    return Run(**data)


@pytest.fixture
def stack(kafka: Any, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    """A stack of this test alone, on the run's Kafka and Redis; handlers: tests/handlers/simple.py."""
    with Stack(kafka.bootstrap_servers, redis_url, topic_prefix, tmp_path, "tests.handlers.simple") as made:
        yield made


@pytest.fixture
def mortal_stack(
    mortal_kafka: KafkaServer, mortal_redis: RedisServer, topic_prefix: str, tmp_path: Path
) -> Iterator[Stack]:
    """A stack on servers that the test may stop and freeze; clients come back to a Kafka within a second."""
    _mend(mortal_kafka, mortal_redis)
    kafka, broker = mortal_kafka.bootstrap_servers, mortal_redis.fresh_url()
    soon = {"KAFKA_RECONNECT_BACKOFF_MAX_MS": "1000"}
    try:
        with Stack(kafka, broker, topic_prefix, tmp_path, "tests.handlers.simple", **soon) as stack:
            yield stack
    finally:
        _mend(mortal_kafka, mortal_redis)


def _mend(*servers: Server) -> None:
    """So that a test finds them as they should be, also if one before failed in the middle of an outage."""
    for server in servers:
        if not server.process.running:
            server.start()
        server.thaw()
