"""Hand-off, one delivery per task, 200-byte records: the bridge against the naive loop."""

from benchmarks.stack import Stack, clock_from_first, compare

NAIVE, OURS = 6_000, 100_000


def main() -> None:
    """The clock runs from the first message in the queue to the last."""
    contestants = {
        "naive loop": lambda on, _: _rate(on, NAIVE, "benchmarks.naive", "one"),
        "bridge": lambda on, number: _rate(on, OURS, "bridge", BRIDGE_GROUP=f"handoff-{number}"),
    }
    compare("handoff", "one", OURS, contestants, {"bridge": 8})


def _rate(on: Stack, count: int, *command: str, **environment: str) -> float:
    client = on.redis
    client.flushall()
    with on.process(*command, **environment):
        return count / clock_from_first(lambda: int(client.llen("celery")), count)
