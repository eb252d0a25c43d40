"""What a message costs: CPU of each part, Redis's commands and bytes, memory; the table of docs/performance/sizing.md.

Everything runs and has handled a first thousand when the clock begins; then records are produced as fast as they go,
and it ends when the last is handled. What the parts cost while nothing comes is measured too, and taken off.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

from benchmarks.rates import clock_from_first
from benchmarks.stack import Headers, Stack, stack
from benchmarks.ways import MANY, RAW_WORKER, WORKER, group

FEW = 8_000
WARM = 1_000
REST = 5.0
#: Days of fates (the default of kafka_ledger_days), and bytes a fate (benchmarks/ledger.py).
DAYS, FATE = 7, 0.6

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class Measured:
    """A way that is measured: our topic, or none for raw Celery; how many messages; its environment; and the headers of
    a record by its number.
    """

    name: str
    topic: str | None
    count: int
    environment: Mapping[str, str]
    headers: Headers | None = None


WAYS: Final = (
    Measured("raw Celery", None, FEW, {}),
    Measured("batch=1", "one", FEW, {}),
    Measured("no option set", "plain", MANY, {}),
    Measured("batch=200", "batch", MANY, {}),
    Measured("batch=200, completion", "batch", MANY, {"COMMIT": "completion"}),
)

#: What is counted: its name in the table, and the number that a message's share is multiplied with.
COLUMNS: Final = {
    "kafka": ("Kafka, µs", 1e6),
    "bridge": ("bridge, µs", 1e6),
    "main": ("worker's main process, µs", 1e6),
    "children": ("worker's children, µs", 1e6),
    "redis": ("Redis, µs", 1e6),
    "commands": ("commands, in scripts too", 1),
    "in": ("bytes to Redis", 1),
    "out": ("bytes from Redis", 1),
    "file": ("bytes of its file", 1),
}


def main() -> None:
    """Each way once, on servers of its own; what one process can be trusted with says the CPU, not the time."""
    rows = [measure(way) for way in WAYS]
    print("| a message | " + " | ".join(way.name for way in WAYS) + " |\n| --- |" + " --- |" * len(WAYS))
    for key, (name, factor) in COLUMNS.items():
        print(f"| {name} | " + " | ".join(f"{row[key] * factor:,.1f}" for row in rows) + " |")
    for key in rows[1]:
        if key.startswith(("MiB", "queued")):
            print(f"| {key} | " + " | ".join(f"{row.get(key, 0):,.0f}" for row in rows) + " |")
    for way, row in zip(WAYS[1:], rows[1:], strict=True):
        _fleet(way, row)


def _fleet(way: Measured, row: Mapping[str, float]) -> None:
    """What these costs make of a rate: cores at full use, megabytes a second at Redis, gigabytes of fates."""
    print(f"| {way.name}, messages/s | bridge | worker | Redis | Kafka | MB/s to, from Redis | GB of fates |")
    print("| --- " * 7 + "|")
    for rate in (1_000, 10_000, 100_000, 1_000_000):
        cores = [rate * row[part] for part in ("bridge", "redis", "kafka")]
        worker = rate * (row["main"] + row["children"])
        there, back = (rate * row[where] / 1e6 for where in ("in", "out"))
        print(
            f"| {rate:,} | {cores[0]:.2f} | {worker:.2f} | {cores[1]:.2f} | {cores[2]:.2f} "
            f"| {there:,.1f}, {back:,.1f} | {rate * DAYS * 86_400 * FATE / 1e9:,.1f} |"
        )


def measure(way: Measured, *, queued: bool = True) -> dict[str, float]:
    """What a message costs in one way, on servers of its own.

    Parameters:
        queued: whether the memory of a message that lies in the queue is measured, too.
    """
    with stack(**({way.topic: 0} if way.topic else {})) as on:
        marks, name = on.marks(WARM + way.count), group()
        on.redis.config_set("auto-aof-rewrite-percentage", 0)
        with _running(on, way, name) as parts:
            _send(on, way, 0, WARM)
            clock_from_first(marks.handled, WARM)
            time.sleep(2)
            before = on.redis.info("commandstats")
            first, began = _spent(on, parts), time.monotonic()
            _send(on, way, WARM, way.count)
            clock_from_first(marks.handled, WARM + way.count)
            time.sleep(1)
            then, seconds = _spent(on, parts), time.monotonic() - began
            time.sleep(REST)
            last = _spent(on, parts)
            memory = {f"MiB of {part}": _resident(pids) / 2**20 for part, pids in _pids(parts).items()}
        found = {
            key: (then[key] - first[key] - (last[key] - then[key]) * seconds / REST) / way.count for key in COLUMNS
        }
        idle = ", ".join(
            f"{key} {(last[key] - then[key]) / REST * 1e3:.1f} ms/s" for key in ("bridge", "main", "redis")
        )
        print(
            f"costs: {way.name}: {way.count / (seconds - 1):,.0f}/s with its producer beside it; idle: {idle}",
            flush=True,
        )
        print(f"costs: {way.name}: Redis: {_commands(before, on.redis.info('commandstats'), way.count)}", flush=True)
        lies = {"queued, bytes a message": _queued(on, way)} if queued else {}
        return {**found, **memory, **lies}


@contextmanager
def _running(on: Stack, way: Measured, name: str) -> Iterator[dict[str, "Popen[bytes]"]]:
    environment = {"BRIDGE_GROUP": name, "TOPIC": way.topic or "", **way.environment}
    with ExitStack() as started:
        if way.topic is None:
            yield {"main": started.enter_context(on.process(*RAW_WORKER, CELERY_CONFIG_MODULE=""))}
        else:
            worker = started.enter_context(on.process(*WORKER, **environment))
            yield {"main": worker, "bridge": started.enter_context(on.process("bridge", **environment))}


def _send(on: Stack, way: Measured, start: int, count: int) -> None:
    if way.topic is not None:
        on.fill(way.topic, count, start=start, headers=way.headers)
        return
    with on.process("benchmarks.fill_raw", str(count), "noop", str(start)) as filling:
        filling.wait(300)


def _queued(on: Stack, way: Measured) -> float:
    """How much of Redis's memory a message takes while it lies in the queue, its fate in the ledger included."""
    client: Any = on.redis
    client.flushall()
    count = WARM + min(way.count, 50_000)
    before = client.info("memory")["used_memory"]
    if way.topic is None:
        _send(on, way, 0, count)
    else:
        queue = group()
        with on.process("bridge", BRIDGE_GROUP=queue, TOPIC=way.topic, FILL="yes", **way.environment):
            size = -1
            while (now := client.llen(queue)) != size or not now:
                size = now
                time.sleep(2)
        count = WARM + way.count
    return float((client.info("memory")["used_memory"] - before) / count)


# -- what was spent


def _commands(before: Mapping[str, Any], after: Mapping[str, Any], count: int) -> str:
    """The commands that took longest; what a script calls counts for the script too."""
    nothing = {"calls": 0, "usec": 0}
    spent = {
        name.removeprefix("cmdstat_"): [one[what] - before.get(name, nothing)[what] for what in ("calls", "usec")]
        for name, one in after.items()
    }
    most = sorted(spent.items(), key=lambda item: -item[1][1])[:8]
    return ", ".join(f"{name} {usec / count:.2f} µs in {calls / count:.3f}" for name, (calls, usec) in most)


def _spent(on: Stack, parts: Mapping[str, "Popen[bytes]"]) -> dict[str, float]:
    client: Any = on.redis
    cpu, stats = client.info("cpu"), client.info("stats")
    used = {part: sum(map(_cpu, pids)) for part, pids in _pids(parts).items()}
    return {
        "bridge": 0.0,
        **used,
        "kafka": _cpu(on.kafka.process.pid),
        "redis": cpu["used_cpu_user"] + cpu["used_cpu_sys"],
        "commands": sum(one["calls"] for one in client.info("commandstats").values()),
        "in": stats["total_net_input_bytes"],
        "out": stats["total_net_output_bytes"],
        "file": client.info("persistence")["aof_current_size"],
    }


def _pids(parts: Mapping[str, "Popen[bytes]"]) -> dict[str, list[int]]:
    found = {part: [process.pid] for part, process in parts.items()}
    pid = parts["main"].pid
    return {**found, "children": [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _resident(pids: list[int]) -> float:
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * _PAGE / len(pids)
