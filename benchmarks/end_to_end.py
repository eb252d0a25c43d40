"""From Kafka to handled, a no-op: with no option set (a backlog, and a burst of a handler whose times are unknown), one
by one, in batches of 200; and raw Celery.
"""

from benchmarks.rates import Way, compare
from benchmarks.ways import MANY, ours, raw

FEW = 6_000
BURST = 10_000


def main() -> None:
    """Raw Celery finds its messages in the queue, ours come through Kafka meanwhile."""
    completion = {"COMMIT": "completion"}
    ways = {
        "raw Celery": Way(raw(FEW)),
        "no option set": Way(ours("plain", MANY), 25),
        f"no option set, {BURST:,} records": Way(ours("burst", BURST)),
        "batch=1": Way(ours("one", FEW)),
        "batch=200": Way(ours("batch", MANY)),
        'batch=200, commit="completion"': Way(ours("batch", MANY, **completion)),
    }
    compare("end_to_end", ways, plain=MANY, burst=BURST, one=FEW, batch=MANY)
