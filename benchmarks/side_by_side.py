"""Async handlers that wait for 10 ms, on two processes: one by one the ideal is 200 a second."""

from benchmarks.rates import Way, compare
from benchmarks.ways import ours

COUNT = 50_000


def main() -> None:
    """What is said, and what is found out."""
    ways = {
        "concurrency=100": Way(ours("wait100", COUNT)),
        'concurrency="auto"': Way(ours("wait", COUNT)),
    }
    compare("side by side", ways, wait100=COUNT, wait=COUNT)
    print("side by side: wanted 5,000/s")
