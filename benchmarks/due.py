"""What was parked comes due: how late it runs, what it does to live records, and what it costs in memory meanwhile."""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.marks import Marks
from benchmarks.stack import PARTITIONS, Stack, stack
from benchmarks.ways import RAW_WORKER, WORKER, group
from bridge.formats.delivery import Delivery, Message
from bridge.formats.retry_record import retry_headers

PARKED = int(os.environ.get("PARKED", "100000"))
#: Seconds over which they come due, evenly; and those that come due at once beside live records.
SPREAD = float(os.environ.get("SPREAD", "10"))
MANY = int(os.environ.get("MANY_DUE", "1000000"))
#: Live records a second, and seconds for which they are measured.
LIVE, SECONDS = int(os.environ.get("LIVE", "100")), float(os.environ.get("SECONDS", "15"))
#: Live records before, so that it is known what a delivery takes; and those of which no time is taken.
WARM, WARM_UP = 20_000, 500
#: Parked records with which the memory of more is compared.
FEW = 50_000
TIER = "quiet.retry.1m"
WHICH = os.environ.get("DUE", "late live memory").split()


def main() -> None:
    """Each on a stack of its own."""
    for name, measure in (("late", late), ("live", live), ("memory", memory)):
        if name in WHICH:
            with stack(quiet=0) as on:
                on.kafka.create_topics(TIER, partitions=PARTITIONS)
                measure(on)


def late(on: Stack) -> None:
    """So many that come due within seconds: never early, and how much later than their share of the rate."""
    marks, name = on.marks(PARKED + WARM), group()
    begin = time.time() + PARKED / 20_000 + 20
    due = [begin + SPREAD * number / PARKED for number in range(PARKED)]
    park(on, name, due)
    print(f"due: {PARKED:,} parked {begin - time.time():.0f} s before the first is due", flush=True)
    with running(on, name):
        # What a delivery takes is known by then, as where there was ever any.
        on.fill("quiet", WARM, start=PARKED)
        until(lambda: marks.handled() == PARKED + WARM, begin - time.time() + SPREAD + 200)
    at = [marks.at(number) for number in range(PARKED)]
    ended = sorted(at)
    rate = PARKED / (ended[-1] - ended[0])
    behind = sorted(at[n] - due[n] for n in range(PARKED))
    # One that has its turn at this rate, in the order in which they are due.
    turn = [max(due[n], begin + n / rate) for n in range(PARKED)]
    share = sorted(at[n] - turn[n] for n in range(PARKED))
    twice = len(marks.more_than_once())
    print(f"due: {rate:,.0f}/s of {PARKED / SPREAD:,.0f}/s; earliest {1000 * behind[0]:+.0f} ms; {twice} twice")
    print(f"due: late p50 {cut(behind, 50):.0f} ms, p99 {cut(behind, 99):.0f} ms, most {1000 * behind[-1]:.0f} ms")
    print(f"due: after its share p99 {cut(share, 99):.0f} ms, wanted at most 500 ms", flush=True)


def live(on: Stack) -> None:
    """Live records, without and with a great many that are due at once beside them."""
    count = int(LIVE * SECONDS) + WARM_UP
    marks, name = on.marks(count * 2 + MANY), group()
    # What is parked is there before anything is measured: to write it takes what the live records would need.
    due = time.time() + MANY / 15_000 + count / LIVE + 20
    with running(on, name):
        park(on, name, [due] * MANY, 2 * count)
        first = produce(on, marks, 0, count)
        until(lambda: time.time() > due, due - time.time() + 1)
        until(lambda: marks.handled() > count + 2_000, 60)
        before, since = marks.handled(), time.time()
        second = produce(on, marks, count, count)
        rate = (marks.handled() - before - count) / (time.time() - since)
        left = 2 * count + MANY - marks.handled()
    for words, found in (("alone", first), (f"beside {MANY:,} due", second)):
        print(f"due: live {words}: p50 {cut(found, 50):.1f} ms, p99 {cut(found, 99):.1f} ms of {len(found)}")
    print(
        f"due: {cut(second, 99) / cut(first, 99):.2f} x, wanted at most 2 x; parked {rate:,.0f}/s, {left:,} were left"
    )


def memory(on: Stack) -> None:
    """Bridge, worker and Redis, before and with so many that wait; raw Celery with a tenth of countdowns beside it."""
    name = group()
    on.marks(1)
    with running(on, name) as (worker, bridge):
        time.sleep(5)
        before = memories(on, bridge, worker)
        park(on, name, [time.time() + 3_600] * FEW)
        time.sleep(10)
        few = memories(on, bridge, worker)
        park(on, name, [time.time() + 3_600] * (MANY - FEW), FEW)
        time.sleep(10)
        after = memories(on, bridge, worker)
    for words, idle, some, more in zip(("bridge", "worker", "Redis"), before, few, after, strict=True):
        print(
            f"due: {words}: {idle:.1f} MB; {FEW:,} parked: {some:.1f} MB; {MANY:,}: {more:.1f} MB "
            f"({more / some:.2f} x), wanted 1 x",
            flush=True,
        )
    on.redis.flushall()
    with on.process(*RAW_WORKER, CELERY_CONFIG_MODULE="") as raw:
        time.sleep(8)
        before = memories(on, raw)
        countdowns(on, MANY // 10)
        time.sleep(20)
        after = memories(on, raw)
    for words, some, more in zip(("worker", "Redis"), before, after, strict=True):
        print(f"due: raw Celery's {words}: {some:.1f} MB, with {MANY // 10:,} countdowns {more:.1f} MB", flush=True)


def park(on: Stack, name: str, due: list[float], first: int = 0) -> None:
    """Write records of the tier, over all partitions."""
    producer = Producer(
        {"bootstrap.servers": on.kafka.bootstrap_servers, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    for number, at in enumerate(due):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        delivery = Delivery(Message("quiet", partition, offset, timestamp=1), "benchmarks.quiet", number=1, runs=1)
        written = retry_headers(delivery, name, due=int(at * 1000))
        while True:
            try:
                producer.produce(TIER, b"%-200d" % (number + first), partition=partition, headers=written)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def produce(on: Stack, marks: Marks, first: int, count: int) -> list[float]:
    """Live records at a steady rate; seconds from each one's production to its run, without those to warm up."""
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers, "linger.ms": 0})
    sent = []
    begun = time.time()
    for number in range(count):
        while (wait := begun + number / LIVE - time.time()) > 0:
            producer.poll(min(wait, 0.002))
        sent.append(time.time())
        producer.produce("quiet", b"%-200d" % (first + number))
        producer.poll(0)
    producer.flush(10)
    until(lambda: all(marks.at(number) for number in range(first, first + count)), 120)
    return sorted(marks.at(first + number) - sent[number] for number in range(WARM_UP, count))


@contextmanager
def running(on: Stack, name: str) -> Iterator[tuple[int, int]]:
    """A worker and a bridge; their process ids."""
    environ = {"BRIDGE_GROUP": name, "TOPIC": "quiet"}
    with on.process(*WORKER, **environ) as worker, on.process("bridge", **environ) as bridge:
        yield worker.pid, bridge.pid


def countdowns(on: Stack, count: int) -> None:
    """Messages for raw Celery that are due in an hour."""
    with on.process("benchmarks.due", "countdowns", str(count), CELERY_CONFIG_MODULE="") as filling:
        assert filling.wait(300) == 0


def memories(on: Stack, *processes: object) -> list[float]:
    """MB of each process, and of Redis."""
    pids = [getattr(each, "pid", each) for each in processes]
    used = float(on.redis.info("memory")["used_memory"]) / 1e6
    return [*(resident(int(str(pid))) for pid in pids), used]


def resident(pid: int) -> float:
    """MB that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def until(condition: object, seconds: float) -> None:
    """Wait for a condition."""
    give_up = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.05)


def cut(found: list[float], percent: int) -> float:
    """A percentile, in ms."""
    return 1000 * statistics.quantiles(found, n=100)[percent - 1]


if __name__ == "__main__" and sys.argv[1:2] == ["countdowns"]:
    from benchmarks import raw

    for sent_ in range(int(sys.argv[2])):
        raw.quiet.apply_async((f"{sent_:<200}",), countdown=3_600)
