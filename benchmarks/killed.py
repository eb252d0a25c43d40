"""The storm with kill -9 of everything in the middle, and a new start: what is missing, what was done twice."""

import time

from confluent_kafka import Consumer, TopicPartition

from benchmarks.end_to_end import WORKER
from benchmarks.stack import PARTITIONS, Marks, Stack, clock_from_first, kill, stack
from benchmarks.storm import COUNT

ROUNDS = 3
KILL_AT = 20_000


def main() -> None:
    """Bridge, worker and its children are killed; Kafka and Redis live on."""
    with stack() as on:
        on.kafka.create_topics("storm", partitions=PARTITIONS)
        on.fill("storm", COUNT)
        for number in range(ROUNDS):
            group = f"killed-{number}"
            marks, seconds = _run(on, group)
            letters = _letters(on, group)
            missing = COUNT - COUNT // 1000 - marks.handled()
            print(
                f"killed: {missing} missing, {marks.more_than_once()} done twice, "
                f"{len(set(letters))} of {COUNT // 1000} dead letters, {len(letters) - len(set(letters))} twice, "
                f"{seconds:.1f} s from the restart",
                flush=True,
            )


def _run(on: Stack, group: str) -> tuple[Marks, float]:
    on.redis.flushall()
    marks = on.marks(COUNT)
    environment = {"BRIDGE_GROUP": group, "COMMIT": "completion", "DEAD_AFTER": "5"}
    with on.process(*WORKER, **environment) as worker, on.process("bridge", **environment) as bridge:
        while marks.handled() < KILL_AT:
            time.sleep(0.005)
        kill(bridge)
        kill(worker)
    time.sleep(0.5)
    started = time.monotonic()
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        clock_from_first(marks.handled, COUNT - COUNT // 1000, patience=120)
        seconds = time.monotonic() - started
        # What runs a second time would do so now.
        time.sleep(10)
    return marks, seconds


def _letters(on: Stack, group: str) -> list[bytes]:
    """The values of the dead letters of a group."""
    client = Consumer(
        {"bootstrap.servers": on.kafka.bootstrap_servers, "group.id": "count", "auto.offset.reset": "earliest"}
    )
    client.assign([TopicPartition("storm.dlq", partition, 0) for partition in range(PARTITIONS)])
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
