"""How long a message waits for a free process, beside the ideal; and what messages with a countdown cost meanwhile."""

import heapq
import json
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from celery import Celery

from lossless import transport
from tests.lossless.harness import TRANSPORT_APP, Broker, entry, wait_until, worker
from tests.servers.redis import RedisServer

#: Which parts: `free` (waiting for a free process), `countdown`.
WHICH = os.environ.get("WAITING", "free countdown").split()

MESSAGES = int(os.environ.get("WAITING_MESSAGES", "100000"))
#: Seconds over which they are due, evenly.
SPREAD = float(os.environ.get("WAITING_SECONDS", "150"))
#: Messages per second that this machine publishes at least.
PUBLISHED = 2_000

#: Workers x processes of each; mean milliseconds of a run; percent of the processes' time; how runs spread; and seconds
#: of arrivals of each combination.
FLEETS = os.environ.get("WAITING_FLEETS", "4x1 1x4").split()
RUNS_MS = [float(each) for each in os.environ.get("WAITING_RUNS_MS", "10 100 1000").split()]
LOADS = [float(each) for each in os.environ.get("WAITING_LOADS", "30 60 90").split()]
SPREADS = os.environ.get("WAITING_SPREADS", "fixed exponential").split()
ROUND_SECONDS = float(os.environ.get("WAITING_ROUND", "30"))
#: Arrivals a second above which a combination is left out: the cores of this machine would be what is measured.
MOST_RATE = float(os.environ.get("WAITING_MOST_RATE", "150"))
#: The arrivals at the start of a round that are not counted.
UNCOUNTED = 10
#: Each transport, and the prefetch multiplier of its workers.
KINDS = {"kombu": 1, "lossless": 4}


def main() -> None:
    """Measure both parts."""
    for name, measure in (("free", measure_waits), ("countdown", measure_countdown)):
        if name in WHICH:
            measure()


# -- waiting for a free process


class Arrival(NamedTuple):
    """A message: seconds from the begin of the round until it arrives, and seconds that it runs."""

    at: float
    runs: float


class Setting(NamedTuple):
    """What one round measures."""

    workers: int
    processes: int
    run_ms: float
    spread: str
    load: float

    @property
    def rate(self) -> float:
        """Arrivals a second."""
        return self.workers * self.processes * self.load / 100 / (self.run_ms / 1000)


def measure_waits() -> None:
    """Send the same Poisson arrivals to plain Celery and to this transport at once: runs sleep, which costs no CPU."""
    print("waiting: ms, p50/p90/p99; 'beside idle': mean ms that a message waited while a process had nothing to do")
    with TemporaryDirectory(prefix="benchmark-") as folder, RedisServer(appendfsync="everysec") as server:
        for number, fleet in enumerate(FLEETS):
            workers, _, processes = fleet.partition("x")
            with ExitStack() as stack:
                brokers = {
                    kind: stack.enter_context(
                        _fleet(server, 10 * number + 2 * i, kind, int(workers), int(processes or 1), Path(folder))
                    )
                    for i, kind in enumerate(KINDS)
                }
                for run_ms in RUNS_MS:
                    for spread in SPREADS:
                        for load in LOADS:
                            setting = Setting(int(workers), int(processes or 1), run_ms, spread, load)
                            if setting.rate <= MOST_RATE:
                                _measure_round(brokers, setting)


def draw_arrivals(setting: Setting, seconds: float) -> list[Arrival]:
    """Return the arrivals of a round, the same whenever it is measured."""
    drawn, at, arrivals = random.Random(str(setting)), 0.0, list[Arrival]()
    mean = setting.run_ms / 1000
    while (at := at + drawn.expovariate(setting.rate)) < seconds:
        arrivals.append(Arrival(at, drawn.expovariate(1 / mean) if setting.spread == "exponential" else mean))
    return arrivals


def simulate_queue(arrivals: Sequence[Arrival], servers: int) -> list[float]:
    """Return how long each message waits if the first to arrive runs first, on the first of so many servers."""
    free, waits = [0.0] * servers, list[float]()
    for arrival in arrivals:
        begins = max(arrival.at, heapq.heappop(free))
        heapq.heappush(free, begins + arrival.runs)
        waits.append(begins - arrival.at)
    return waits


def find_wasted_wait(spans: Sequence[tuple[float, float, float]], servers: int) -> float:
    """Return the mean seconds that a message waited while fewer ran than there are servers.

    Parameters:
        spans: of each message when it arrived, began and ended.
    """
    changes = sorted(
        change for arrived, began, ended in spans for change in ((arrived, 1, 0), (began, -1, 1), (ended, 0, -1))
    )
    waiting = running = 0
    wasted, last = 0.0, 0.0
    for at, waits, runs in changes:
        wasted += (at - last) * min(waiting, max(0, servers - running))
        waiting, running, last = waiting + waits, running + runs, at
    return wasted / len(spans)


@contextmanager
def _fleet(
    server: RedisServer, database: int, kind: str, workers: int, processes: int, folder: Path
) -> Iterator[Broker]:
    broker = Broker(server, database)
    with ExitStack() as stack:
        stack.callback(broker.close)
        for _ in range(workers):
            stack.enter_context(
                worker(
                    broker.url, folder, "-c", str(processes), transport=kind, level="WARNING", wait=False,
                    worker_prefetch_multiplier=KINDS[kind],
                )
            )  # fmt: skip
        wait_until(lambda: _listeners(broker) >= workers, 120, "all listen")
        time.sleep(2)
        yield broker


def _listeners(broker: Broker) -> int:
    """Return how many clients of a database hear patterns, as each worker's remote control does."""
    clients = broker.client.client_list()
    return sum(client["psub"] != "0" and client["db"] == str(broker.database) for client in clients)


def _measure_round(brokers: dict[str, Broker], setting: Setting) -> None:
    arrivals = draw_arrivals(setting, ROUND_SECONDS)
    for broker in brokers.values():
        broker.notes.delete("timed")
    sent = _send(list(brokers.values()), arrivals)
    for broker in brokers.values():
        wait_until(lambda broker=broker: broker.notes.llen("timed") >= len(arrivals), 120, "all ran")  # type: ignore[misc]
    servers = setting.workers * setting.processes
    real = [Arrival(at, arrival.runs) for at, arrival in zip(sent, arrivals, strict=True)]
    columns = [f"ideal {_cuts(simulate_queue(real, servers)[UNCOUNTED:])}"]
    for kind, broker in brokers.items():
        began = dict(broker.noted("timed"))
        waits = [began[number] - arrival.at for number, arrival in enumerate(real)]
        spans = [(arrival.at, began[number], began[number] + arrival.runs) for number, arrival in enumerate(real)]
        wasted = find_wasted_wait(spans, servers)
        columns.append(f"{kind} {_cuts(waits[UNCOUNTED:])} beside idle {1000 * wasted:.1f}")
    print(
        f"waiting: {setting.workers} workers of {setting.processes}, {setting.run_ms:g} ms {setting.spread},"
        f" {setting.load:g} %, {len(arrivals)}: {'; '.join(columns)}",
        flush=True,
    )


def _send(brokers: Sequence[Broker], arrivals: Sequence[Arrival]) -> list[float]:
    """Send each arrival to all brokers at its time; return when that was."""
    begin, sent = time.time() + 0.5, list[float]()
    for number, arrival in enumerate(arrivals):
        body = [[number, arrival.runs], {}, {}]
        payload = json.dumps(entry(f"{TRANSPORT_APP}.timed_nap", uuid.uuid4().hex, body))
        time.sleep(max(0.0, begin + arrival.at - time.time()))
        sent.append(time.time())
        for broker in brokers[:: 1 if number % 2 else -1]:
            broker.client.lpush("celery", payload)
    return sent


def _cuts(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return "/".join(f"{1000 * ordered[int(len(ordered) * share)]:.0f}" for share in (0.5, 0.9, 0.99))


# -- messages with a countdown


def measure_countdown() -> None:
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
