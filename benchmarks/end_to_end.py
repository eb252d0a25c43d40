"""From Kafka to handled, one by one: bridge and worker against raw Celery's own worker, same function, acks_late."""

from benchmarks.stack import Stack, clock_from_first, compare

COUNT = 6_000
_OPTIONS = ("worker", "-c", "2", "--without-mingle", "--without-gossip", "-l", "WARNING")
WORKER = ("celery", "-A", "tasks", *_OPTIONS)
RAW_WORKER = ("celery", "-A", "benchmarks.raw", *_OPTIONS)


def main() -> None:
    """Raw Celery finds its messages in the queue, ours come through Kafka meanwhile."""
    contestants = {"raw Celery": lambda on, _: raw_rate(on, COUNT), "bridge and worker": _ours}
    compare("end to end", "one", COUNT, contestants, {"bridge and worker": 1.2})


def raw_rate(on: Stack, count: int, task: str = "raw") -> float:
    """Raw Celery: its messages lie in the queue when its worker starts."""
    on.redis.flushall()
    marks = on.marks(count)
    with on.process("benchmarks.fill_raw", str(count), task) as filling:
        filling.wait(120)
    with on.process(*RAW_WORKER, CELERY_CONFIG_MODULE=""):
        return count / clock_from_first(marks.handled, count)


def _ours(on: Stack, number: int) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    group = f"end-{number}"
    with on.process(*WORKER, BRIDGE_GROUP=group), on.process("bridge", BRIDGE_GROUP=group):
        return COUNT / clock_from_first(marks.handled, COUNT)
