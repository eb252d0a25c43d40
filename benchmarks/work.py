"""The work of every contestant: a no-op that marks its message as handled, a short sleep, and the peers' storm."""

import asyncio
import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.marks import Marks, write_start


class TransientError(Exception):
    """Gone at the second run."""


class PermanentError(Exception):
    """Never gone."""


@cache
def _marks() -> Marks:
    return Marks(Path(os.environ["MARKS"]))


#: How many starts in a second the limit of the topic `rated` allows.
RATE: Final = 50


@cache
def _database() -> Any:
    # Not for those that need none: its import costs memory.
    import psycopg

    return psycopg.connect(os.environ["DATABASE"])


def mark(number: int) -> None:
    """A no-op."""
    _marks().mark(number)


def mark_at(number: int) -> None:
    """A no-op whose time is of interest."""
    _marks().mark_at(number, time.time())


def start(number: int) -> None:
    """A no-op of which each start is of interest, and by which process."""
    write_start(Path(os.environ["MARKS"]))
    _marks().mark(number)


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


def _row(number: int) -> tuple[int, str]:
    return number, f"{number:<200}"


def insert(number: int) -> None:
    """One row in a transaction of its own."""
    with _database().transaction():
        _database().execute("INSERT INTO moves VALUES (%s, %s)", _row(number))
    _marks().mark(number)


def insert_all(numbers: Sequence[int]) -> None:
    """Rows in one transaction, by one statement for all."""
    with _database().transaction(), _database().cursor() as cursor:
        cursor.executemany("INSERT INTO moves VALUES (%s, %s)", [_row(number) for number in numbers])
    for number in numbers:
        _marks().mark(number)


def copy_all(numbers: Sequence[int]) -> None:
    """Rows in one transaction, by one COPY."""
    with (
        _database().transaction(),
        _database().cursor() as cursor,
        cursor.copy("COPY moves FROM STDIN") as copy,
    ):
        for number in numbers:
            copy.write_row(_row(number))
    for number in numbers:
        _marks().mark(number)
