"""Hand-off, one delivery per task, 200-byte records: the bridge against the naive loop."""

from benchmarks.stack import Stack, clock_from_first, compare

NAIVE, OURS = 6_000, 100_000


def main() -> None:
    """The clock runs from the first message in the queue to the last."""
    contestants = {
        "naive loop": lambda on, _: _rate(on, NAIVE, "celery", "benchmarks.naive", "one"),
        "bridge": lambda on, number: _bridge(on, f"handoff-{number}"),
    }
    compare("handoff", "one", OURS, contestants, {"bridge": 8})


def _bridge(on: Stack, group: str) -> float:
    return _rate(on, OURS, group, "bridge", BRIDGE_GROUP=group)


def _rate(on: Stack, count: int, queue: str, *command: str, **environment: str) -> float:
    client = on.redis
    client.flushall()
    with on.process(*command, **environment):
        return count / clock_from_first(lambda: int(client.llen(queue)), count)
