"""A limit that all workers share: its starts against its rate over a minute, with 16 processes, kills and a restart of
Redis; and what a handler with a limit costs a message, beside one without.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.costs import COLUMNS, Measured, measure
from benchmarks.marks import Start, read_starts
from benchmarks.rates import ROUNDS
from benchmarks.stack import Stack, kill, stack
from benchmarks.ways import group
from benchmarks.work import RATE

SECONDS: Final = 60
WORKERS: Final = 4
WORKER: Final = ("celery", "-A", "tasks", "worker", "-c", "4")
PROCESSES: Final = 16
#: Of which a part waits when the minute is over.
RECORDS: Final = RATE * SECONDS * 3
COUNT: Final = int(os.environ.get("LIMITED", "40000"))
WAYS: Final = (
    Measured("no limit", "plain", COUNT, {}),
    Measured("a rate", "limited", COUNT, {}),
    Measured("a rate, by key", "limited_key", COUNT, {}),
    Measured("a concurrency", "limited_runs", COUNT // 4, {}),
)
#: What is shown of costs.
SHOWN: Final = ("main", "children", "bridge", "redis", "commands")


def main() -> None:
    """The rate first, then the costs in interleaved rounds."""
    _measure_rate()
    rows: dict[str, list[dict[str, float]]] = {way.name: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way in WAYS:
            rows[way.name].append(measure(way, queued=False))
            print(f"limits: {way.name}: {_show(rows[way.name][-1:])}", flush=True)
    for name, measured in rows.items():
        print(f"limits: median {name}: {_show(measured)}", flush=True)


def _show(measured: Sequence[dict[str, float]]) -> str:
    found = {key: statistics.median(each[key] for each in measured) * COLUMNS[key][1] for key in SHOWN}
    return ", ".join(f"{COLUMNS[key][0]} {number:,.2f}" for key, number in found.items())


def _measure_rate() -> None:
    with stack(rated=RECORDS) as on, ExitStack() as running:
        on.marks(RECORDS)
        environment = {"BRIDGE_GROUP": group(), "TOPIC": "rated", "DEAD_AFTER": "5"}
        workers = [running.enter_context(on.process(*WORKER, **environment)) for _ in range(WORKERS)]
        running.enter_context(on.process("bridge", **environment))
        _wait_for_all(on)
        begun = time.time()
        _sleep_until(begun + 15)
        kill(workers[0])
        running.enter_context(on.process(*WORKER, **environment))
        _sleep_until(begun + 30)
        away = _timed(on.redis_server.restart)
        _sleep_until(begun + 45)
        children = Path(f"/proc/{workers[1].pid}/task/{workers[1].pid}/children").read_text().split()
        for child in children[:2]:
            os.kill(int(child), signal.SIGKILL)
        _sleep_until(begun + SECONDS)
        _report(read_starts(on.folder / "marks"), begun, away)


def _wait_for_all(on: Stack) -> None:
    """Wait until each process has begun something, and what could start at once after the pause has started."""
    give_up = time.monotonic() + 90
    while len({start.pid for start in read_starts(on.folder / "marks")}) < PROCESSES:
        if time.monotonic() > give_up:
            raise TimeoutError(f"not all of {PROCESSES} processes began something")
        time.sleep(0.2)


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def _timed(act: Callable[[], None]) -> float:
    since = time.monotonic()
    act()
    return time.monotonic() - since


def _report(starts: Sequence[Start], begun: float, away: float) -> None:
    within = [start for start in starts if begun <= start.at < begun + SECONDS]
    pause = max(after.at - before.at for before, after in pairwise(within))
    wanted = RATE * SECONDS
    print(
        f"limits: {len(within)} starts in {SECONDS} s of {wanted}: {len(within) / wanted - 1:+.2%}, wanted 2 %; by "
        f"{len({start.pid for start in within})} processes, of which 6 were killed, Redis down for {away:.2f} s; the "
        f"longest pause {pause:.2f} s",
        flush=True,
    )
