"""Hand-off, one delivery per task, 200-byte records: the bridge against the naive loop."""

from benchmarks.rates import Way, clock_from_first, compare
from benchmarks.stack import Stack
from benchmarks.ways import group

NAIVE, OURS = 6_000, 100_000


def main() -> None:
    """The clock runs from the first message in the queue to the last."""
    ways = {"naive loop": Way(_naive), "bridge": Way(_bridge, 8)}
    compare("handoff", ways, one=OURS)


def _naive(on: Stack) -> float:
    with on.process("benchmarks.naive", "one"):
        return NAIVE / clock_from_first(lambda: int(on.redis.llen("celery")), NAIVE)


def _bridge(on: Stack) -> float:
    queue, client = group(), on.redis
    with on.process("bridge", BRIDGE_GROUP=queue, TOPIC="one", FILL="yes"):
        return OURS / clock_from_first(lambda: int(client.llen(queue)), OURS)
