"""`order="key"` with 1,000 keys and `batch=200`, against unordered; both commit="completion"."""

from benchmarks.rates import Way, compare
from benchmarks.ways import ours

COUNT = 100_000


def main() -> None:
    """Each with a group of its own."""
    completion = {"COMMIT": "completion"}
    ways = {
        "unordered": Way(ours("batch", COUNT, **completion)),
        'order="key"': Way(ours("batch", COUNT, ORDER="key", **completion), 0.5),
        'order="partition"': Way(ours("batch", COUNT, ORDER="partition", **completion)),
    }
    compare("order", ways, batch=COUNT)
