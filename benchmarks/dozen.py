"""Twelve handlers of 5 ms to 2 s on twelve topics, for the overload: ours, and the naive loop's task."""

import os
import time
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.marks import Marks

#: By topic: seconds of a run, and its part of the time of all runs.
RUNS: Final = {
    "ms5": (0.005, 0.03),
    "ms7": (0.007, 0.03),
    "ms10": (0.01, 0.03),
    "ms15": (0.015, 0.03),
    "ms20": (0.02, 0.03),
    "ms30": (0.03, 0.03),
    "ms50": (0.05, 0.1),
    "ms100": (0.1, 0.1),
    "ms200": (0.2, 0.15),
    "ms500": (0.5, 0.15),
    "s1": (1.0, 0.16),
    "s2": (2.0, 0.16),
}


@cache
def _marks() -> Marks:
    return Marks(Path(os.environ["MARKS"]))


def run(topic: str, number: int) -> None:
    """Take as long as the topic's runs take, and note the end."""
    time.sleep(RUNS[topic][0])
    _marks().mark_at(number, time.time())


def _declare() -> None:
    from tasks import handler

    def declare(topic: str) -> None:
        @handler(topic, name=topic)
        def handle(number: int) -> None:
            run(topic, number)

    for topic in RUNS:
        declare(topic)


if os.environ.get("HANDLERS") == "benchmarks.dozen":
    _declare()
