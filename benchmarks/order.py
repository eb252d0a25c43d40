"""`order="key"` with 1,000 keys and `batch=200`, against unordered; both commit="completion"."""

from functools import partial

from benchmarks.end_to_end import WORKER
from benchmarks.stack import Stack, clock_from_first, compare

COUNT = 100_000


def main() -> None:
    """Each with a group of its own."""
    orders = {"unordered": "", 'order="key"': "key", 'order="partition"': "partition"}
    compare(
        "order", "batch", COUNT, {who: partial(_rate, order) for who, order in orders.items()}, {'order="key"': 0.5}
    )


def _rate(order: str, on: Stack, number: int) -> float:
    on.redis.flushall()
    marks = on.marks(COUNT)
    environment = {"BRIDGE_GROUP": f"order-{number}-{order}", "COMMIT": "completion", "ORDER": order}
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        return COUNT / clock_from_first(marks.handled, COUNT)
