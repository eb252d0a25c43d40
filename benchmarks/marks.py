"""Which messages were handled, and when first: in a shared file, so that counting costs next to nothing."""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

_TIME: Final = struct.Struct("d")


class Marks:
    """A byte a message for how often it was handled, one for what a handler remembers of it, eight for a time."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.count = len(self._map) // (2 + _TIME.size)

    @classmethod
    def fresh(cls, path: Path, count: int) -> "Marks":
        """Make the file anew."""
        path.write_bytes(bytes((2 + _TIME.size) * count))
        return cls(path)

    # -- what handlers write

    def mark(self, number: int) -> None:
        """Count a message as handled."""
        self._map[number] = min(255, self._map[number] + 1)

    def mark_at(self, number: int, now: float) -> None:
        """The same, with the time of the first run."""
        if not self._map[number]:
            _TIME.pack_into(self._map, 2 * self.count + _TIME.size * number, now)
        self.mark(number)

    def seen_before(self, number: int) -> bool:
        """Whether a message has run before; it outlives a process."""
        place = self.count + number
        before, self._map[place] = self._map[place], 1
        return bool(before)

    # -- what a benchmark reads

    def handled(self) -> int:
        """How many were handled."""
        return self.count - self._map[: self.count].count(0)

    def more_than_once(self) -> list[int]:
        """Which were handled more than once."""
        return [number for number, times in enumerate(self._map[: self.count]) if times > 1]

    def at(self, number: int) -> float:
        """When one was handled first (Unix), 0 if it was not, or nobody wrote it down."""
        (found,) = _TIME.unpack_from(self._map, 2 * self.count + _TIME.size * number)
        return float(found)


class Start(NamedTuple):
    """When a run began (Unix), and in which process."""

    at: float
    pid: int


_START: Final = struct.Struct("dq")


def write_start(marks: Path) -> None:
    """Add a start to the file beside the marks; several processes append to it."""
    file = os.open(marks.with_suffix(".starts"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, _START.pack(time.time(), os.getpid()))
    finally:
        os.close(file)


def read_starts(marks: Path) -> list[Start]:
    """All starts, the first in front."""
    file = marks.with_suffix(".starts")
    return sorted(Start(*each) for each in _START.iter_unpack(file.read_bytes())) if file.exists() else []
