"""From Kafka to handled, `batch=200`, ledger on, commit="completion": against raw Celery running the same function."""

from benchmarks.end_to_end import COUNT as FEW
from benchmarks.end_to_end import WORKER, raw_rate
from benchmarks.stack import PARTITIONS, Stack, clock_from_first, report, stack

ROUNDS = 3
COUNT = 200_000


def main() -> None:
    """Interleaved rounds."""
    rates: dict[str, list[float]] = {"raw Celery": [], "batch=200": []}
    with stack() as on:
        on.kafka.create_topics("batch", partitions=PARTITIONS)
        on.fill("batch", COUNT)
        for number in range(ROUNDS):
            rates["raw Celery"].append(raw_rate(on, FEW))
            rates["batch=200"].append(_ours(on, f"batches-{number}"))
    report("batches", rates, "raw Celery", {"batch=200": 25})


def _ours(on: Stack, group: str) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    environment = {"BRIDGE_GROUP": group, "COMMIT": "completion"}
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        return COUNT / clock_from_first(marks.handled, COUNT)
