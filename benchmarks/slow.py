"""Handlers of 10 ms with no option set on eight processes; the ideal is 800 a second."""

from benchmarks.rates import Way, compare
from benchmarks.ways import RAW_WORKER, WORKER, ours, raw

COUNT = 4_000
EIGHT = ("-c", "8")


def main() -> None:
    """Two cores carry eight processes that sleep."""
    ways = {
        "raw Celery": Way(raw(COUNT, "slow", (*RAW_WORKER[:-2], *EIGHT))),
        "no option set": Way(ours("slow", COUNT, (*WORKER[:-2], *EIGHT))),
    }
    compare("slow", ways, slow=COUNT)
    print("slow: wanted 640/s of the ideal 800/s")
