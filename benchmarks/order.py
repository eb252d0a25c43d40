"""`order="key"` with 1,000 keys and `batch=200`, against unordered; both commit="completion"."""

from benchmarks.end_to_end import WORKER
from benchmarks.stack import PARTITIONS, Stack, clock_from_first, report, stack

ROUNDS = 3
COUNT = 100_000


def main() -> None:
    """Interleaved rounds."""
    orders = {"unordered": "", 'order="key"': "key", 'order="partition"': "partition"}
    rates: dict[str, list[float]] = {name: [] for name in orders}
    with stack() as on:
        on.kafka.create_topics("batch", partitions=PARTITIONS)
        on.fill("batch", COUNT)
        for number in range(ROUNDS):
            for name, order in orders.items():
                rates[name].append(_rate(on, f"order-{number}-{order}", order))
    report("order", rates, "unordered", {'order="key"': 0.5})


def _rate(on: Stack, group: str, order: str) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    environment = {"BRIDGE_GROUP": group, "COMMIT": "completion", "ORDER": order}
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        return COUNT / clock_from_first(marks.handled, COUNT)
