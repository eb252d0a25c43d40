"""Handlers of 10 ms with no option set on eight processes, and on eight threads; the ideal is 800 a second."""

from benchmarks.rates import Way, compare
from benchmarks.ways import RAW_WORKER, WORKER, ours, raw

COUNT = 4_000
EIGHT = ("-c", "8")
THREADS = (*EIGHT, "-P", "threads")


def main() -> None:
    """Two cores carry eight that sleep."""
    ways = {
        "raw Celery": Way(raw(COUNT, "slow", (*RAW_WORKER[:-2], *EIGHT))),
        "no option set": Way(ours("slow", COUNT, (*WORKER[:-2], *EIGHT))),
        "raw Celery, threads": Way(raw(COUNT, "slow", (*RAW_WORKER[:-2], *THREADS))),
        "no option set, threads": Way(ours("slow", COUNT, (*WORKER[:-2], *THREADS)), base="raw Celery, threads"),
    }
    compare("slow", ways, slow=COUNT)
    print("slow: wanted 640/s of the ideal 800/s")
