"""A record on a quiet topic, from its production to its handler's first line; beside it plain `delay()` to run."""

import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

from celery import Celery
from confluent_kafka import Producer

from benchmarks.marks import Marks
from benchmarks.rates import ROUNDS
from benchmarks.stack import Stack, stack
from benchmarks.ways import RAW_WORKER, WORKER, group

#: Messages a round, and those before that are not counted: the first makes connections.
COUNT, FIRST = 150, 10
WANTED = 10


def main() -> None:
    """One message at a time, 30 to 80 ms after the one before; rounds are interleaved."""
    late: dict[str, list[float]] = {"plain delay()": [], "no option set": []}
    with stack(quiet=0) as on:
        for _ in range(ROUNDS):
            late["plain delay()"] += _plain(on)
            late["no option set"] += _ours(on)
    for who, found in late.items():
        cuts = statistics.quantiles(found, n=100)
        print(f"latency: {who:14} p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms of {len(found)}", flush=True)
    print(f"latency: wanted: not slower by more than {WANTED} ms")


def _plain(on: Stack) -> list[float]:
    on.redis.flushall()
    marks = on.marks(COUNT)
    with on.process(*RAW_WORKER, CELERY_CONFIG_MODULE=""), ExitStack() as made:
        send = _delay(on, made)
        return _measure(marks, send)


def _delay(on: Stack, made: ExitStack) -> Callable[[int], None]:
    """As a producer of its own would, on kombu's own transport."""
    app = made.enter_context(Celery(broker=on.redis_server.url))

    def send(number: int) -> None:
        app.send_task("quiet", (f"{number:<200}",), ignore_result=True)

    return send


def _ours(on: Stack) -> list[float]:
    on.redis.flushall()
    marks, name = on.marks(COUNT), group()
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers, "linger.ms": 0})

    def send(number: int) -> None:
        producer.produce("quiet", b"%-200d" % number)
        producer.poll(0)

    with (
        on.process(*WORKER, BRIDGE_GROUP=name, TOPIC="quiet"),
        on.process("bridge", BRIDGE_GROUP=name, TOPIC="quiet", KAFKA_AUTO_OFFSET_RESET="latest"),
    ):
        found = _measure(marks, send)
    producer.flush(10)
    return found


def _measure(marks: Marks, send: Callable[[int], None]) -> list[float]:
    late = []
    _until_handled(marks, 0, send)
    for number in range(1, COUNT):
        sent = time.time()
        send(number)
        _until_handled(marks, number)
        late.append(1000 * (marks.at(number) - sent))
        time.sleep(random.uniform(0.03, 0.08))
    return late[FIRST:]


def _until_handled(marks: Marks, number: int, again: Callable[[int], None] | None = None) -> None:
    """Wait; `again` sends it every second, while a group that begins at a topic's end has not begun."""
    begun = time.monotonic()
    tries = 0
    while not marks.at(number):
        waited = time.monotonic() - begun
        assert waited < 60, f"message {number} was not handled"
        if again is not None and waited > tries:
            tries += 1
            again(number)
        time.sleep(0.001)
