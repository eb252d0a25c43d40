"""The peers' storm: every 20th message fails once (1 s backoff), every 1000th for good; all ended, dead letters too."""

from confluent_kafka import Consumer, TopicPartition

from benchmarks.end_to_end import WORKER, raw_rate
from benchmarks.stack import PARTITIONS, Stack, clock_from_first, compare

COUNT = 50_000
FEW = 6_000


def main() -> None:
    """Against raw Celery with autoretry, which writes no dead letters."""
    contestants = {"raw Celery, autoretry": lambda on, _: raw_rate(on, FEW, "raw_storm"), "batch=200": _ours}
    compare("storm", "storm", COUNT, contestants, {"batch=200": 5})


def _ours(on: Stack, before: int) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    dead = COUNT // 1000
    environment = {"BRIDGE_GROUP": f"storm-{before}", "COMMIT": "completion"}
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
