"""The work of every contestant: a no-op that marks its message as handled, and the peers' storm."""

import mmap
import os

_map: mmap.mmap | None = None


class TransientError(Exception):
    """Gone at the second run."""


class PermanentError(Exception):
    """Never gone."""


def mark(number: int) -> None:
    """Count a message in the shared file as handled."""
    marks = _marks()
    marks[number] = min(255, marks[number] + 1)


def seen_before(number: int) -> bool:
    """Whether a message has run before; from the second half of the file, so that it outlives a process."""
    marks = _marks()
    place = len(marks) // 2 + number
    before, marks[place] = marks[place], 1
    return bool(before)


def _marks() -> mmap.mmap:
    global _map
    if _map is None:
        with open(os.environ["MARKS"], "r+b") as file:
            _map = mmap.mmap(file.fileno(), 0)
    return _map


def fail_as_asked(number: int) -> None:
    """Every 20th fails at its first run, every 1000th always."""
    if number % 1000 == 0:
        raise PermanentError(number)
    if number % 20 == 0 and not seen_before(number):
        raise TransientError(number)
