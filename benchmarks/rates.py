"""Rates, and their ratios in interleaved rounds of one run."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.stack import Stack, stack

ROUNDS: Final = int(os.environ.get("ROUNDS", "3"))


@dataclass(frozen=True)
class Way:
    """A contestant: what gives its rate, and how many times the rate of `base` (the first, unless named) is wanted."""

    rate: Callable[[Stack], float]
    wanted: float | None = None
    base: str = ""


def compare(name: str, ways: Mapping[str, Way], rounds: int = ROUNDS, **topics: int) -> None:
    """Print the rates of contestants, in interleaved rounds on one stack whose topics hold so many records."""
    rates: dict[str, list[float]] = {who: [] for who in ways}
    with stack(**topics) as on:
        for _ in range(rounds):
            for who, way in ways.items():
                on.redis.flushall()
                rates[who].append(way.rate(on))
                print(f"{name}: {who:40} {rates[who][-1]:>10,.0f}/s", flush=True)
    _report(name, rates, ways)


def clock_from_first(count: Callable[[], int], total: int, patience: float = 300) -> float:
    """Seconds from the first that is counted to the last; start-up is not measured.

    Raises:
        TimeoutError: not all were counted in `patience` seconds.
    """
    give_up = time.monotonic() + patience
    while (first := count()) == 0:
        _still(give_up, 0, total)
        time.sleep(0.002)
    begun = time.perf_counter()
    while (now := count()) < total:
        _still(give_up, now, total)
        time.sleep(0.01)
    # What was there at the first look was not seen to be done.
    return (time.perf_counter() - begun) * total / max(1, total - first)


def _still(give_up: float, now: int, total: int) -> None:
    if time.monotonic() > give_up:
        raise TimeoutError(f"{now} of {total} only")


def _report(name: str, rates: Mapping[str, list[float]], ways: Mapping[str, Way]) -> None:
    """Print each rate and its ratio to its base, as medians of the rounds."""
    medians = {who: statistics.median(found) for who, found in rates.items()}
    for who, found in rates.items():
        base = ways[who].base or next(iter(ways))
        wanted = ways[who].wanted
        print(
            f"{name}: median {who:33} {medians[who]:>10,.0f}/s ({min(found):,.0f} to {max(found):,.0f})"
            f"  {medians[who] / medians[base]:6.2f} x {base}" + ("" if wanted is None else f", wanted {wanted:g} x"),
            flush=True,
        )
