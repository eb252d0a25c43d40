"""A stretch of overload: twelve handlers of 5 ms to 2 s, beside the naive loop on the same records and cores.

Records come at random (Poisson) for `CALM` seconds at a share of what the processes can carry, then for `PEAK` seconds
at more than that, then calmly again. Both groups read the same records at the same time, and each has a Redis of its
own, whose commands are counted. First in, first out on as many servers is computed for the same records.
"""

import heapq
import os
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, NamedTuple

import redis
from confluent_kafka import Producer

from benchmarks.dozen import RUNS
from benchmarks.marks import Marks
from benchmarks.stack import Stack, stack
from benchmarks.ways import group
from tests.servers.redis import RedisServer

PROCESSES: Final = int(os.environ.get("PROCESSES", "8"))
#: Seconds of each stretch, and the part of the processes' time that its records take.
CALM: Final = float(os.environ.get("CALM", "20"))
PEAK: Final = float(os.environ.get("PEAK", "10"))
CALM_LOAD: Final = float(os.environ.get("CALM_LOAD", "0.5"))
PEAK_LOAD: Final = float(os.environ.get("PEAK_LOAD", "1.3"))
#: Seconds that everything rests before the first record, and after the last is handled.
SETTLE: Final = 8.0
PARTITIONS: Final = 2

_TICK: Final = os.sysconf("SC_CLK_TCK")


class Arrival(NamedTuple):
    """A record that comes: seconds after the first could, and its topic."""

    at: float
    topic: str


class Side(NamedTuple):
    """One of the two: its processes by role, its Redis, and the marks of its runs."""

    parts: Mapping[str, "Popen[bytes]"]
    server: RedisServer
    marks: Marks


def main() -> None:
    """One round."""
    arrivals = plan_arrivals(random.Random(23))
    with stack() as on, RedisServer(appendfsync="everysec") as server, ExitStack() as started:
        on.kafka.create_topics(*RUNS, partitions=PARTITIONS)
        sides = {"here": _ours(on, started, len(arrivals)), "naive loop": _naive(on, started, server, len(arrivals))}
        _warm_up(on, sides, len(arrivals))
        before = {name: _spent(side) for name, side in sides.items()}
        began = time.time()
        sent = _produce(on, arrivals)
        _wait(sides, len(arrivals))
        seconds = time.time() - began
        after = {name: _spent(side) for name, side in sides.items()}
        time.sleep(SETTLE)
        idle = {name: _spent(side) for name, side in sides.items()}
        for name, side in sides.items():
            late = [side.marks.at(number) - at for number, at in enumerate(sent)]
            _report(name, arrivals, late)
            _report_costs(name, len(arrivals), seconds, (before[name], after[name], idle[name]))
    _report("first in, first out", arrivals, simulate_fifo(arrivals, PROCESSES))


def plan_arrivals(chance: random.Random) -> list[Arrival]:
    """Return the records of all topics in the order of their times."""
    arrivals = []
    for topic, (seconds, part) in RUNS.items():
        at = 0.0
        while True:
            load = PEAK_LOAD if CALM <= at < CALM + PEAK else CALM_LOAD
            at += chance.expovariate(load * PROCESSES * part / seconds)
            if at > CALM + PEAK + CALM:
                break
            arrivals.append(Arrival(at, topic))
    return sorted(arrivals)


def simulate_fifo(arrivals: Sequence[Arrival], servers: int) -> list[float]:
    """Return how long after its arrival each record has ended, first in and first out on so many servers."""
    free, late = [0.0] * servers, []
    for at, topic in arrivals:
        ended = max(heapq.heappop(free), at) + RUNS[topic][0]
        heapq.heappush(free, ended)
        late.append(ended - at)
    return late


def _ours(on: Stack, started: ExitStack, count: int) -> Side:
    environment: dict[str, Any] = {"BRIDGE_GROUP": group(), "HANDLERS": "benchmarks.dozen"}
    marks = on.marks(count + len(RUNS))
    worker = ("celery", "-A", "tasks", "worker", "-c", str(PROCESSES))
    parts = {
        "worker": started.enter_context(on.process(*worker, **environment)),
        "loop": started.enter_context(on.process("bridge", **environment)),
    }
    return Side(parts, on.redis_server, marks)


def _naive(on: Stack, started: ExitStack, server: RedisServer, count: int) -> Side:
    path = on.folder / "naive-marks"
    settings = {"CELERY_BROKER_URL": server.url, "CELERY_CONFIG_MODULE": "", "HANDLERS": ""}
    environment: dict[str, Any] = {**settings, "MARKS": str(path)}
    marks = Marks.fresh(path, count + len(RUNS))
    worker = ("celery", "-A", "benchmarks.naive", "worker", "-c", str(PROCESSES))
    parts = {
        "worker": started.enter_context(on.process(*worker, **environment)),
        "loop": started.enter_context(on.process("benchmarks.naive", *RUNS, **environment)),
    }
    return Side(parts, server, marks)


def _warm_up(on: Stack, sides: Mapping[str, Side], count: int) -> None:
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers})
    for number, topic in enumerate(RUNS):
        producer.produce(topic, b"%d" % (count + number))
    producer.flush(10)
    _wait(sides, len(RUNS))
    time.sleep(SETTLE)


def _produce(on: Stack, arrivals: Sequence[Arrival]) -> list[float]:
    """Produce each record at its time; return when each was."""
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers, "linger.ms": 0})
    began, sent = time.time(), []
    for number, (at, topic) in enumerate(arrivals):
        while (left := began + at - time.time()) > 0:
            producer.poll(0)
            time.sleep(min(left, 0.05))
        sent.append(time.time())
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
    assert producer.flush(60) == 0, "Kafka has not taken all records"
    return sent


def _wait(sides: Mapping[str, Side], more: int) -> None:
    """Wait until each side has handled so many."""
    end = time.monotonic() + 120
    # The warm-up's are in the count once the others are waited for.
    wanted = more if more == len(RUNS) else more + len(RUNS)
    while any(side.marks.handled() < wanted for side in sides.values()):
        if time.monotonic() > end:
            raise TimeoutError({name: side.marks.handled() for name, side in sides.items()})
        time.sleep(0.1)


# -- what was seen


def _report(name: str, arrivals: Sequence[Arrival], late: Sequence[float]) -> None:
    # Those that come before the backlog is gone are of the overload too.
    stretches = {
        "all": late,
        "overload": [each for each, (at, _) in zip(late, arrivals, strict=True) if CALM <= at < CALM + PEAK],
        "before": [each for each, (at, _) in zip(late, arrivals, strict=True) if at < CALM],
    }
    for stretch, found in stretches.items():
        cuts = statistics.quantiles(found, n=100)
        print(
            f"overload: {name:20} {stretch:9} {len(found):6,}: p50 {cuts[49] * 1e3:6.0f} ms, p90 {cuts[89]:5.2f} s,"
            f" p99 {cuts[98]:5.2f} s, worst {max(found):5.2f} s",
            flush=True,
        )
    slowest = {topic: max(each for each, a in zip(late, arrivals, strict=True) if a.topic == topic) for topic in RUNS}
    print(f"overload: {name:20} worst     " + ", ".join(f"{topic} {most:.1f}" for topic, most in slowest.items()))


def _report_costs(name: str, count: int, seconds: float, spent: Sequence[Mapping[str, float]]) -> None:
    before, after, idle = spent
    used = {key: after[key] - before.get(key, 0) for key in after}
    rested = {key: idle[key] - after.get(key, 0) for key in after}
    cpu = {key[4:]: value for key, value in used.items() if key.startswith("cpu ")}
    print(
        f"overload: {name:20} CPU, ms a delivery: "
        + ", ".join(f"{part} {value / count * 1e3:.2f}" for part, value in cpu.items())
        + f", in all {sum(cpu.values()) / count * 1e3:.2f}"
    )
    commands = {key: value for key, value in used.items() if not key.startswith("cpu ")}
    quiet = sum(value for key, value in rested.items() if not key.startswith("cpu ")) / SETTLE
    print(
        f"overload: {name:20} {sum(commands.values()) / count:.1f} Redis commands a delivery ({quiet:.0f}/s idle;"
        f" without those {(sum(commands.values()) - quiet * seconds) / count:.1f}): "
        + ", ".join(f"{key} {value / count:.2f}" for key, value in sorted(commands.items(), key=lambda i: -i[1])[:16]),
        flush=True,
    )


def _spent(side: Side) -> dict[str, float]:
    client: Any = redis.Redis.from_url(side.server.url)
    cpu, stats = client.info("cpu"), client.info("commandstats")
    pid = side.parts["worker"].pid
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return {
        "cpu loop": _cpu(side.parts["loop"].pid),
        "cpu worker": _cpu(pid),
        "cpu children": sum(map(_cpu, children)),
        "cpu redis": cpu["used_cpu_user"] + cpu["used_cpu_sys"],
        **{key.removeprefix("cmdstat_"): one["calls"] for key, one in stats.items()},
    }


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
