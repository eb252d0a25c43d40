"""The peers' storm: every 20th message fails once (1 s backoff), every 1000th for good; all ended, dead letters too."""

from benchmarks.rates import Way, compare
from benchmarks.ways import MANY, ours, raw

FEW = 6_000


def main() -> None:
    """Against raw Celery with autoretry, which writes no dead letters."""
    ways = {
        "raw Celery, autoretry": Way(raw(FEW, "storm")),
        "no option set": Way(ours("storm", MANY, storm=True), 12),
        "batch=200": Way(ours("storm200", MANY, storm=True)),
    }
    compare("storm", ways, storm=MANY, storm200=MANY)
