"""Who writes to a SQLite file: that holds up all others, and whom to end is what they must know. Linux alone tells."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

#: Linux's list of locks. A lock must never be asked for at the file itself: closing that would give up our own.
LOCKS: Final = Path("/proc/locks")
#: The byte of SQLite's `-shm` file that is locked by who writes.
WRITER: Final = 120


def holder(file: str | None) -> str:
    """Which process writes to a SQLite file now, and what to do about it, a clause; "" where that cannot be told."""
    try:
        pid = writer(LOCKS.read_text().splitlines(), os.stat(f"{file}-shm").st_ino)
        return "" if pid is None else _words(pid, Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return ""


def writer(locks: Iterable[str], inode: int) -> int | None:
    """The process that has the lock, by the lines of /proc/locks (pure).

    Parameters:
        inode: of the `-shm` file.
    """
    for line in locks:
        # `7: POSIX  ADVISORY  WRITE 4711 fe:00:12447578 120 120`; of who waits, `7: -> POSIX …`.
        words = line.split()
        if words[1:2] != ["POSIX"] or words[3] != "WRITE" or words[5].rpartition(":")[2] != str(inode):
            continue
        pid, first, last = int(words[4]), int(words[6]), words[7]
        # Of a process in another container no number is told.
        if first <= WRITER and (last == "EOF" or int(last) >= WRITER) and pid > 0:
            return pid
    return None


def _words(pid: int, stat: str) -> str:
    # `4711 (python) T 1 …`; the name may have anything in it.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    if rest.split()[:1] in (["T"], ["t"]):
        return f"process {pid} ({name}) has it and is stopped: wake it (kill -CONT) or end it, nothing else frees it"
    return f"process {pid} ({name}) has it: see what it does; if it never ends, end it"
