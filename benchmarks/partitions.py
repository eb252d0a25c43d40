"""The cost of partitions while nothing comes: CPU of the bridge and commands of Redis a minute, start, `/metrics`.

Each number of source partitions has a Kafka and a Redis of its own, one handler with the default retries, and nothing
produced. `PARTITIONS` (`4,64,256`; `20x100` is 20 topics of 100) says how many, `SETTLE_SECONDS` (10) how long they
rest once all have begun, and `IDLE_SECONDS` (60) how long they are measured.
"""

import os
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

from confluent_kafka import Consumer

from benchmarks.stack import Stack, stack
from benchmarks.ways import group
from bridge.formats.pause_reasons import PauseReason
from tests.servers.process import free_port

NUMBERS: Final = os.environ.get("PARTITIONS", "4,64,256").split(",")
#: Kafka refuses a request that creates more partitions.
MOST_CREATED: Final = 1_000
SECONDS: Final = float(os.environ.get("IDLE_SECONDS", "60"))
SETTLE: Final = float(os.environ.get("SETTLE_SECONDS", "10"))
#: Seconds until a bridge must be ready.
READY_WITHIN: Final = 180.0

_TICK: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure each number of partitions once."""
    for number in NUMBERS:
        _measure(number)


def _measure(number: str) -> None:
    count, _, each = number.rpartition("x")
    topics = ["plain", *(f"plain-{number}" for number in range(2, int(count or 1) + 1))]
    at_once = max(1, MOST_CREATED // int(each))
    with stack() as on:
        for at in range(0, len(topics), at_once):
            on.kafka.create_topics(*topics[at : at + at_once], partitions=int(each))
        on.marks(1)
        port = free_port()
        begun = time.monotonic()
        environment = {"TOPIC": "plain", "MORE_TOPICS": " ".join(topics[1:]), "BRIDGE_HTTP_PORT": str(port)}
        with on.process("bridge", BRIDGE_GROUP=group(), **environment) as bridge:
            _wait_ready(port)
            start, start_cpu = time.monotonic() - begun, _cpu(bridge.pid)
            _wait_begun(on, port)
            begun_cpu = _cpu(bridge.pid)
            time.sleep(SETTLE)
            before, cpu, at = _commands(on), _cpu(bridge.pid), time.monotonic()
            time.sleep(SECONDS)
            after, spent, seconds = _commands(on), _cpu(bridge.pid) - cpu, time.monotonic() - at
            metrics, by_partition = (len(_get(port, page)) for page in ("/metrics", "/metrics?by=partition"))
            resident = int(Path(f"/proc/{bridge.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        rates = {name: (calls - before.get(name, 0)) / seconds for name, calls in after.items()}
        a_minute, commands = spent * 60 / seconds, sum(rates.values())
        most = sorted(rates.items(), key=lambda rate: -rate[1])[:9]
        print(
            f"partitions: {number:>6}: idle {a_minute:5.2f} s of CPU a minute, {commands:6.0f} commands/s;"
            f" ready after {start:.1f} s with {start_cpu:.1f} s of CPU, all begun with {begun_cpu:.1f} s;"
            f" /metrics {metrics / 1000:,.0f} kB, by partition {by_partition / 1000:,.0f} kB;"
            f" {resident / 2**20:.0f} MiB\n    " + ", ".join(f"{name} {rate:.1f}" for name, rate in most),
            flush=True,
        )


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
        if name.startswith("plain") and not name.endswith(".dlq")
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
