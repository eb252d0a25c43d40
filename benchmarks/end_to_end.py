"""From Kafka to handled, a no-op: with no option set, one by one, in batches of 200; and raw Celery."""

from benchmarks.rates import Way, compare
from benchmarks.ways import MANY, ours, raw

FEW = 6_000


def main() -> None:
    """Raw Celery finds its messages in the queue, ours come through Kafka meanwhile."""
    completion = {"COMMIT": "completion"}
    ways = {
        "raw Celery": Way(raw(FEW)),
        "no option set": Way(ours("plain", MANY), 25),
        "batch=1": Way(ours("one", FEW)),
        "batch=200": Way(ours("batch", MANY)),
        'batch=200, commit="completion"': Way(ours("batch", MANY, **completion)),
    }
    compare("end_to_end", ways, plain=MANY, one=FEW, batch=MANY)
