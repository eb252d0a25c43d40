"""The storm with kill -9 of everything in the middle, and a new start: what is missing, what was done twice."""

import time

from confluent_kafka import Consumer, TopicPartition

from benchmarks.marks import Marks
from benchmarks.rates import ROUNDS, clock_from_first
from benchmarks.stack import PARTITIONS, Stack, kill, stack
from benchmarks.ways import WORKER, group

COUNT = 50_000
KILL_AT = 20_000
#: Seconds before the kill within which what finished may run twice.
LATE = 0.01


def main() -> None:
    """Bridge, worker and its children are killed; Kafka and Redis live on."""
    with stack(storm=COUNT, storm200=COUNT) as on:
        for _ in range(ROUNDS):
            for topic, commit in (("storm", ""), ("storm200", ""), ("storm200", "completion")):
                on.redis.flushall()
                environment = {"BRIDGE_GROUP": group(), "TOPIC": topic, "DEAD_AFTER": "5"}
                if commit:
                    environment["COMMIT"] = commit
                _report(on, topic, environment)


def _report(on: Stack, topic: str, environment: dict[str, str]) -> None:
    marks, killed_at, seconds = _run(on, environment)
    letters = _letters(on, topic, environment["BRIDGE_GROUP"])
    missing = COUNT - COUNT // 1000 - marks.handled()
    twice = marks.more_than_once()
    early = [number for number in twice if marks.at(number) < killed_at - LATE]
    print(
        f"killed: {topic} {environment.get('COMMIT', '')}: {missing} missing, {len(twice)} done twice, {len(early)} of "
        f"them first more than {LATE * 1000:.0f} ms before the kill; {len(set(letters))} of {COUNT // 1000} dead "
        f"letters, {len(letters) - len(set(letters))} twice; {seconds:.1f} s from the restart",
        flush=True,
    )


def _run(on: Stack, environment: dict[str, str]) -> tuple[Marks, float, float]:
    """The marks, when the worker was killed, and the seconds from the restart to the end."""
    marks = on.marks(COUNT)
    with on.process(*WORKER, **environment) as worker, on.process("bridge", **environment) as bridge:
        while marks.handled() < KILL_AT:
            time.sleep(0.002)
        killed_at = time.time()
        kill(worker)
        kill(bridge)
    time.sleep(0.5)
    started = time.monotonic()
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        clock_from_first(marks.handled, COUNT - COUNT // 1000, patience=120)
        seconds = time.monotonic() - started
        # What runs a second time would do so now.
        time.sleep(10)
    return marks, killed_at, seconds


def _letters(on: Stack, topic: str, group: str) -> list[bytes]:
    """The values of the dead letters of a group."""
    client = Consumer(
        {"bootstrap.servers": on.kafka.bootstrap_servers, "group.id": "count", "auto.offset.reset": "earliest"}
    )
    client.assign([TopicPartition(f"{topic}.dlq", partition, 0) for partition in range(PARTITIONS)])
    found = []
    silent = 0
    while silent < 5:
        records = client.consume(1000, 0.5)
        silent = 0 if records else silent + 1
        found += [
            record.value() or b""
            for record in records
            if record.error() is None and ("bridge_group", group.encode()) in (record.headers() or ())
        ]
    client.close()
    return found
