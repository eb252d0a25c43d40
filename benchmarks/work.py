"""The work of every contestant: a no-op that marks its message as handled, a short sleep, and the peers' storm."""

import asyncio
import os
import time
from functools import cache
from pathlib import Path

from benchmarks.marks import Marks


class TransientError(Exception):
    """Gone at the second run."""


class PermanentError(Exception):
    """Never gone."""


@cache
def _marks() -> Marks:
    return Marks(Path(os.environ["MARKS"]))


def mark(number: int) -> None:
    """A no-op."""
    _marks().mark(number)


def mark_at(number: int) -> None:
    """A no-op whose time is of interest."""
    _marks().mark_at(number, time.time())


def nap(number: int) -> None:
    """10 ms."""
    time.sleep(0.01)
    _marks().mark(number)


async def wait(number: int) -> None:
    """10 ms in which the process is free."""
    await asyncio.sleep(0.01)
    _marks().mark(number)


def storm(number: int) -> None:
    """Every 20th fails at its first run, every 1000th always."""
    if number % 1000 == 0:
        raise PermanentError(number)
    if number % 20 == 0 and not _marks().seen_before(number):
        raise TransientError(number)
    mark_at(number)
