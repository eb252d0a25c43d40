"""The cost of partitions while nothing or little comes: CPU of the bridge, commands of Redis, start, `/metrics`.

Each number of source partitions has a Kafka and a Redis of its own, and one handler with the default retries.
`PARTITIONS` (`4,64,256`; `20x100` is 20 topics of 100) says how many, `SETTLE_SECONDS` (10) how long they
rest once all have begun, and `IDLE_SECONDS` (60) how long they are measured while nothing comes. Then a worker is
started, and for `SPARSE_SECONDS` (30; 0: not at all) 20 records a second come, each to another partition.
"""

import os
import random
import statistics
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.marks import Marks
from benchmarks.stack import Stack, stack
from benchmarks.ways import WORKER, group
from bridge.formats.pause_reasons import PauseReason
from tests.servers.process import free_port

NUMBERS: Final = os.environ.get("PARTITIONS", "4,64,256").split(",")
#: Kafka refuses a request that creates more partitions.
MOST_CREATED: Final = 1_000
SECONDS: Final = float(os.environ.get("IDLE_SECONDS", "60"))
SETTLE: Final = float(os.environ.get("SETTLE_SECONDS", "10"))
SPARSE_SECONDS: Final = float(os.environ.get("SPARSE_SECONDS", "30"))
#: Records a second that come here and there, and those that are not counted, because the first make connections.
SPARSE: Final = 20
FIRST: Final = 20
#: Seconds until a bridge must be ready.
READY_WITHIN: Final = 180.0

_TICK: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure each number of partitions once."""
    for number in NUMBERS:
        _measure(number)


def _measure(number: str) -> None:
    count, _, each = number.rpartition("x")
    topics = ["quiet", *(f"quiet-{number}" for number in range(2, int(count or 1) + 1))]
    at_once = max(1, MOST_CREATED // int(each))
    with stack() as on:
        for at in range(0, len(topics), at_once):
            on.kafka.create_topics(*topics[at : at + at_once], partitions=int(each))
        _wait_led(on, topics, int(each))
        marks = on.marks(FIRST + int(SPARSE * SPARSE_SECONDS))
        port, name = free_port(), group()
        begun = time.monotonic()
        environment = {"TOPIC": "quiet", "MORE_TOPICS": " ".join(topics[1:]), "BRIDGE_HTTP_PORT": str(port)}
        with on.process("bridge", BRIDGE_GROUP=name, **environment) as bridge:
            _wait_ready(port)
            start, start_cpu = time.monotonic() - begun, _cpu(bridge.pid)
            _wait_begun(on, port)
            all_begun, begun_cpu = time.monotonic() - begun, _cpu(bridge.pid)
            time.sleep(SETTLE)
            before, cpu, at = _commands(on), _cpu(bridge.pid), time.monotonic()
            time.sleep(SECONDS)
            after, spent, seconds = _commands(on), _cpu(bridge.pid) - cpu, time.monotonic() - at
            rates = {name: (calls - before.get(name, 0)) / seconds for name, calls in after.items()}
            a_minute, commands = spent * 60 / seconds, sum(rates.values())
            metrics, by_partition = (len(_get(port, page)) for page in ("/metrics", "/metrics?by=partition"))
            with on.process(*WORKER, BRIDGE_GROUP=name, **environment):
                sparse = _measure_sparse(on, marks, bridge.pid, topics, int(each), cpu=a_minute, commands=commands)
            resident = int(Path(f"/proc/{bridge.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        most = sorted(rates.items(), key=lambda rate: -rate[1])[:9]
        print(
            f"partitions: {number:>6}: idle {a_minute:5.2f} s of CPU a minute, {commands:6.0f} commands/s;"
            f" ready after {start:.1f} s with {start_cpu:.1f} s of CPU, all begun after {all_begun:.1f} s"
            f" with {begun_cpu:.1f} s;"
            f" /metrics {metrics / 1000:,.0f} kB, by partition {by_partition / 1000:,.0f} kB;"
            f" {resident / 2**20:.0f} MiB\n    " + ", ".join(f"{name} {rate:.1f}" for name, rate in most) + sparse,
            flush=True,
        )


def _wait_led(on: Stack, topics: Sequence[str], partitions: int) -> None:
    """Wait until Kafka answers for every partition: it makes a thousand of them within seconds, not at once."""
    admin = AdminClient({"bootstrap.servers": on.kafka.bootstrap_servers})
    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        answers = admin.list_offsets({place: OffsetSpec.latest() for place in places}, request_timeout=10)
        if not any(future.exception() for future in answers.values()):
            return
        time.sleep(0.5)
    raise TimeoutError(f"Kafka has not made all partitions after {READY_WITHIN:.0f} s")


def _measure_sparse(
    on: Stack, marks: Marks, bridge: int, topics: Sequence[str], partitions: int, *, cpu: float, commands: float
) -> str:
    """Return what records that come here and there cost beyond `cpu` a minute and `commands` a second, and take."""
    if not SPARSE_SECONDS:
        return ""
    count, sent = marks.count, list[float]()
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers, "linger.ms": 0})
    producer.produce(topics[0], b"%-200d" % 0, partition=0)
    producer.flush(10)
    _wait_handled(marks, 1)
    sent.append(time.time())
    for number in range(1, count):
        if number == FIRST:
            _wait_handled(marks, FIRST)
            before, used, at = _commands(on), _cpu(bridge), time.monotonic()
        sent.append(time.time())
        producer.produce(random.choice(topics), b"%-200d" % number, partition=random.randrange(partitions))
        producer.poll(0)
        time.sleep(random.uniform(0.5, 1.5) / SPARSE)
    _wait_handled(marks, count)
    seconds, counted = time.monotonic() - at, count - FIRST
    spent = _cpu(bridge) - used - cpu * seconds / 60
    more = sum(_commands(on).values()) - sum(before.values()) - commands * seconds
    centiles = statistics.quantiles([1000 * (marks.at(number) - sent[number]) for number in range(FIRST, count)], n=100)
    return (
        f"\n    {counted} records here and there: p50 {centiles[49]:.1f} ms, p99 {centiles[98]:.1f} ms;"
        f" beyond idle {1000 * spent / counted:.2f} ms of the bridge's CPU a record,"
        f" {more / counted:.1f} commands (with those of the worker)"
    )


def _wait_handled(marks: Marks, number: int) -> None:
    """Wait until so many records were handled."""
    end = time.monotonic() + 60
    while marks.handled() < number:
        assert time.monotonic() < end, f"{number - marks.handled()} records were not handled"
        time.sleep(0.005)


def _wait_ready(port: int) -> None:
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        with suppress(URLError, ConnectionError):
            _get(port, "/readyz")
            return
        time.sleep(0.1)
    raise TimeoutError(f"the bridge is not ready after {READY_WITHIN:.0f} s")


def _wait_begun(on: Stack, port: int) -> None:
    """Wait until the ledger knows all partitions, of retry and replay topics too, and none waits for its start."""
    topics = (
        Consumer({"bootstrap.servers": on.kafka.bootstrap_servers, "group.id": "count"}).list_topics(timeout=10).topics
    )
    wanted = sum(
        len(topic.partitions)
        for name, topic in topics.items()
        if name.startswith("quiet") and not name.endswith(".dlq")
    )
    while sum(
        int(on.redis.hlen(key)) for key in on.redis.keys("*:joined")
    ) < wanted or PauseReason.START_UNKNOWN.encode() in _get(port, "/metrics"):
        time.sleep(0.5)


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return bytes(answer.read())


def _commands(on: Stack) -> dict[str, int]:
    """Return the calls of each command so far, those within scripts too."""
    stats: Mapping[str, Any] = on.redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
