"""The death of a process: what took it (signal, limit, memory), and its history in the message."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from billiard.exceptions import TimeLimitExceeded

#: The header of a message that says what took its processes, and when: the last `KEPT` of them, the first in front.
LOSS_HISTORY: Final = "losses"
KEPT: Final = 10
#: How a cause begins that is a hard time limit.
TIME_LIMIT: Final = "hard time limit"

#: billiard's words, and Celery's, around the one thing that they say (billiard/pool.py, `mark_as_worker_lost`).
_EXITED: Final = re.compile(r"Worker exited prematurely: (.*?)(?: Job: \d+)?\.?$", re.DOTALL)


def describe_cause(error: BaseException, out_of_memory: bool = False) -> str:
    """Return what ended a process: a signal, an exit code, its time limit or its memory limit.

    Parameters:
        error: as the pool reports it.
        out_of_memory: whether the kernel has just killed a process for want of memory.
    """
    if isinstance(error, TimeLimitExceeded):
        limit = error.args[0] if error.args else None
        return f"{TIME_LIMIT} of {limit:g} s" if isinstance(limit, int | float) else TIME_LIMIT
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    found = _EXITED.match(str(error))
    cause = found.group(1).rstrip(".") if found else f"{type(error).__name__} {error}".strip()
    killed = out_of_memory and "SIGKILL" in cause
    return f"{cause}, out of memory: the kernel killed it" if killed else cause


def add_to_history(headers: Mapping[str, Any], cause: str, at: float) -> list[str]:
    """Return the loss history of a message with a new loss in front.

    Parameters:
        at: seconds since the epoch.
    """
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return [*read_loss_history(headers), f"{when} {cause}"][-KEPT:]


def read_loss_history(headers: object) -> list[str]:
    """Return the loss history in a message's headers; anything else there counts as none."""
    found = headers.get(LOSS_HISTORY) if isinstance(headers, Mapping) else None
    return [each for each in found if isinstance(each, str)][-KEPT:] if isinstance(found, list) else []


def describe_death(cause: str, lost: int) -> str:
    """Return why a message is dead whose processes were lost so often, the last one by this cause."""
    return cause if lost < 2 else f"{cause}; its process was lost {lost} times"


_GROUPS = Path("/sys/fs/cgroup")


class MemoryKills:
    """The number of kills for memory among the processes that share this one's memory limit.

    Parameters:
        events: the file in which the kernel counts; found out where it is not given.
    """

    def __init__(self, events: Path | None = None) -> None:
        self._events = events or _own_events()
        self._seen = self._count()

    def more(self) -> bool:
        """Return whether there were more since the last call; never if the system does not count them."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            for line in self._events.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


def _own_events() -> Path:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                return _GROUPS / line[4:] / "memory.events"
    return _GROUPS / "memory.events"


_own_kills: list[MemoryKills] = []


def get_memory_kills() -> MemoryKills:
    """Return the kills of this process's group, counted from the first call on."""
    if not _own_kills:
        _own_kills.append(MemoryKills())
    return _own_kills[0]
