"""The peers' storm: every 20th message fails once (1 s backoff), every 1000th for good; all ended, dead letters too."""

from confluent_kafka import Consumer, TopicPartition

from benchmarks.end_to_end import WORKER, raw_rate
from benchmarks.stack import PARTITIONS, Stack, clock_from_first, report, stack

ROUNDS = 3
COUNT = 50_000
FEW = 6_000


def main() -> None:
    """Interleaved rounds against raw Celery with autoretry, which writes no dead letters."""
    rates: dict[str, list[float]] = {"raw Celery, autoretry": [], "batch=200": []}
    with stack() as on:
        on.kafka.create_topics("storm", partitions=PARTITIONS)
        on.fill("storm", COUNT)
        for number in range(ROUNDS):
            rates["raw Celery, autoretry"].append(raw_rate(on, FEW, "raw_storm"))
            rates["batch=200"].append(_ours(on, f"storm-{number}", number))
    report("storm", rates, "raw Celery, autoretry", {"batch=200": 5})


def _ours(on: Stack, group: str, before: int) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    dead = COUNT // 1000
    environment = {"BRIDGE_GROUP": group, "COMMIT": "completion"}
    with on.process(*WORKER, **environment), on.process("bridge", **environment):

        def ended() -> int:
            handled = marks.handled()
            # Dead letters are only asked for at the end: asking costs the broker.
            return handled + (_letters(on) - before * dead if handled == COUNT - dead else 0)

        return COUNT / clock_from_first(ended, COUNT)


def _letters(on: Stack) -> int:
    client = Consumer({"bootstrap.servers": on.kafka.bootstrap_servers, "group.id": "count"})
    try:
        return sum(
            client.get_watermark_offsets(TopicPartition("storm.dlq", partition), timeout=5)[1]
            for partition in range(PARTITIONS)
        )
    finally:
        client.close()
