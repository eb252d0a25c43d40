"""Task events, `batch=1`: switched off, on while nobody listens, and on while somebody does; raw Celery likewise."""

from benchmarks.rates import Way, compare
from benchmarks.ways import RAW_WORKER, heard, ours, raw

COUNT = 6_000


def main() -> None:
    """Each against raw Celery with the same setting; raw Celery's default is off, ours on."""
    sends = (*RAW_WORKER, "-E")
    ways = {
        "raw Celery, off": Way(raw(COUNT)),
        "raw Celery -E, nobody listens": Way(raw(COUNT, worker=sends)),
        "raw Celery -E, somebody listens": Way(heard(raw(COUNT, worker=sends))),
        "batch=1, off": Way(ours("one", COUNT, EVENTS="off")),
        "batch=1, nobody listens": Way(ours("one", COUNT), 2.5, "raw Celery -E, nobody listens"),
        "batch=1, somebody listens": Way(heard(ours("one", COUNT)), 1.5, "raw Celery -E, somebody listens"),
    }
    compare("events", ways, one=COUNT)
