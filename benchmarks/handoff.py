"""Hand-off, one delivery per task, 200-byte records: the bridge against the naive loop."""

from benchmarks.stack import PARTITIONS, Stack, clock_from_first, report, stack

ROUNDS = 3
NAIVE, OURS = 6_000, 100_000


def main() -> None:
    """Interleaved rounds; the clock runs from the first message in the queue to the last."""
    rates: dict[str, list[float]] = {"naive loop": [], "bridge": []}
    with stack() as on:
        on.kafka.create_topics("one", partitions=PARTITIONS)
        on.fill("one", OURS)
        for number in range(ROUNDS):
            rates["naive loop"].append(_rate(on, NAIVE, "benchmarks.naive", "one"))
            rates["bridge"].append(_rate(on, OURS, "bridge", BRIDGE_GROUP=f"handoff-{number}"))
    report("handoff", rates, "naive loop", {"bridge": 8})


def _rate(on: Stack, count: int, *command: str, **environment: str) -> float:
    client = on.redis
    client.flushall()
    with on.process(*command, **environment):
        return count / clock_from_first(lambda: int(client.llen("celery")), count)
