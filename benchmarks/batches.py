"""From Kafka to handled, `batch=200`, ledger on, commit="completion": against raw Celery running the same function."""

from benchmarks.end_to_end import COUNT as FEW
from benchmarks.end_to_end import WORKER, raw_rate
from benchmarks.stack import Stack, clock_from_first, compare

COUNT = 200_000


def main() -> None:
    """Raw Celery one by one, with fewer."""
    contestants = {"raw Celery": lambda on, _: raw_rate(on, FEW), "batch=200": _ours}
    compare("batches", "batch", COUNT, contestants, {"batch=200": 25})


def _ours(on: Stack, number: int) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    environment = {"BRIDGE_GROUP": f"batches-{number}", "COMMIT": "completion"}
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        return COUNT / clock_from_first(marks.handled, COUNT)
